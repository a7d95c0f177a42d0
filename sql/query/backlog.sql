-- What the unfinished events wait for, and how long the oldest due one has been due.
-- Parameters: $1 min_age in seconds; $2 max_failures; $3 max_age in seconds, or null.
-- Index: the partial one of unfinished rows. Locks: none, so what another relay is sending counts as due.
with unfinished as (
    select
        -- The moment at which it became due, the later of its two conditions.
        greatest(
            available_at,
            case when status = 'WAITING' then created_at + make_interval(secs => $1) else last_retried_at end
        ) as due_at,
        -- To be ended unsent, whatever it waits for.
        coalesce(expired_at <= statement_timestamp(), false)
            or coalesce(status = 'WAITING' and created_at < statement_timestamp() - make_interval(secs => $3), false)
            or (status = 'FAILED' and coalesce(fail_count, 0) >= $2) as over,
        status = 'WAITING'
            and created_at > statement_timestamp() - make_interval(secs => $1)
            and (available_at is null or available_at <= statement_timestamp()) as young,
        status = 'FAILED' as failed,
        expired_at
    from {table}
    where status in ('WAITING', 'FAILED')
)
select
    count(*) filter (where over or due_at is null or due_at <= statement_timestamp()),
    count(*) filter (where not over and due_at > statement_timestamp() and young),
    count(*) filter (where not over and due_at > statement_timestamp() and not young and failed),
    count(*) filter (where not over and due_at > statement_timestamp() and not young and not failed),
    extract(epoch from statement_timestamp() - min(due_at) filter (
        where due_at <= statement_timestamp() and isfinite(due_at)
    ))::float8
from unfinished
