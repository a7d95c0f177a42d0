-- What the unfinished events wait for, and how long the oldest due one has been due.
-- Parameters: those of the part; $4 min_age in seconds.
-- Index: those of the part, and the one of unfinished rows. Locks: none, so what another relay is sending counts as
-- due.
with held as materialized (
    {held_keys}
),
unfinished as (
    select
        -- The moment at which it became due, the later of its two conditions.
        greatest(
            available_at,
            case when status = 'WAITING' then created_at + make_interval(secs => $4) else last_retried_at end
        ) as due_at,
        -- To be ended unsent, whatever it waits for.
        coalesce(expired_at <= statement_timestamp(), false)
            or coalesce(status = 'WAITING' and created_at < statement_timestamp() - make_interval(secs => $1), false)
            or (status = 'FAILED' and coalesce(fail_count, 0) >= $2) as over,
        status = 'WAITING'
            and created_at > statement_timestamp() - make_interval(secs => $4)
            and (available_at is null or available_at <= statement_timestamp()) as young,
        -- What an operator has made due again by and by has no failures counted, and is scheduled.
        status = 'FAILED' and coalesce(fail_count, 0) > 0 as failed,
        -- Its key's first event is not to be had. That one itself is not due, and counts as what it is.
        held.key is not null as held
    from {table}
    left join held on held.key = (ordering_key collate "C")
    where status in ('WAITING', 'FAILED')
),
judged as (
    select *, over or due_at is null or due_at <= statement_timestamp() as due
    from unfinished
)
select
    count(*) filter (where due and not held),
    count(*) filter (where not due and young),
    count(*) filter (where not due and not young and failed),
    count(*) filter (where not due and not young and not failed),
    count(*) filter (where due and held),
    extract(epoch from statement_timestamp() - min(due_at) filter (
        where due_at <= statement_timestamp() and isfinite(due_at) and not held
    ))::float8
from judged
