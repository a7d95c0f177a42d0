-- Keys whose first unfinished event cannot be sent now, and so holds others back: first those whose event is dead or
-- backs off, then those whose event is scheduled, each the longest blocked first.
-- Parameters: $1 how many keys to look at for scheduled events, and how many refused events; $2 how many keys to
-- return; $3 how many events to count behind each; $4 whether a DEAD event blocks its key; $5 max_age in seconds, or
-- null; $6 max_failures; $7 and $8 how last_error begins where an operator made the event due: that one waits for its
-- turn, and is not in trouble.
-- Index: the one of refused events, which is looked at first: scheduled events, however many, must not hide them; the
-- partial ones of held events and of keys: one step in each per key, however many events a key has.
-- Locks: none.
with recursive refused as materialized (
    select (ordering_key collate "C") as key
    from {table}
    where status in ('FAILED', 'DEAD')
    order by id
    limit $1
),
held (key, number) as (
    (
        select (ordering_key collate "C"), 1
        from {table}
        where ordering_key is not null
            and status in ('WAITING', 'FAILED', 'DEAD')
            and (status = 'DEAD' or available_at is not null)
        order by (ordering_key collate "C"), id
        limit 1
    )
    union all
    select next.key, held.number + 1
    from held
    cross join lateral (
        select (ordering_key collate "C") as key
        from {table}
        where ordering_key is not null
            and status in ('WAITING', 'FAILED', 'DEAD')
            and (status = 'DEAD' or available_at is not null)
            and (ordering_key collate "C") > held.key
        order by (ordering_key collate "C"), id
        limit 1
    ) as next
    where held.number < $1
),
keys as materialized (
    select key from refused where key is not null
    union
    select key from held
),
blocked as materialized (
    select keys.key, head.*
    from keys
    cross join lateral (
        select
            id,
            event_id,
            event_type,
            status,
            last_error,
            available_at,
            coalesce(last_retried_at, created_at) as since,
            coalesce(expired_at <= statement_timestamp(), false)
                or (status = 'FAILED' and coalesce(fail_count, 0) >= $6)
                or coalesce(
                    status = 'WAITING' and created_at < statement_timestamp() - make_interval(secs => $5), false
                ) as over
        from {table}
        where ordering_key is not null
            and (ordering_key collate "C") = keys.key
            and status in ('WAITING', 'FAILED', 'DEAD')
            and ($4 or status <> 'DEAD')
        order by id
        limit 1
    ) as head
    where head.status = 'DEAD'
        or (
            head.available_at > statement_timestamp()
            and not head.over
            and not coalesce(starts_with(head.last_error, $7) or starts_with(head.last_error, $8), false)
            -- A scheduled event that nothing waits for blocks nobody.
            and (
                head.status = 'FAILED'
                or exists (
                    select
                    from {table} as follower
                    where follower.ordering_key is not null
                        and (follower.ordering_key collate "C") = keys.key
                        and follower.status in ('WAITING', 'FAILED', 'DEAD')
                        and ($4 or follower.status <> 'DEAD')
                        and follower.id > head.id
                )
            )
        )
)
select
    bounds.more, bounds.blocked,
    left(listed.key, 1024),
    listed.id::bigint,
    left(listed.event_id::text, 256),
    left(listed.event_type::text, 256),
    listed.status::text,
    left(listed.last_error, 1000),
    {time listed.available_at},
    extract(epoch from statement_timestamp() - case when isfinite(listed.since) then listed.since end)::float8,
    depth.events
from (
    select
        (select count(*) >= $1 from refused) or (select count(*) >= $1 from held) as more,
        (select count(*) from blocked) as blocked
) as bounds
left join (
    select * from blocked order by status = 'WAITING', since, id limit $2
) as listed on true
left join lateral (
    select count(*) as events
    from (
        select 1
        from {table} as follower
        where follower.ordering_key is not null
            and (follower.ordering_key collate "C") = listed.key
            and follower.status in ('WAITING', 'FAILED', 'DEAD')
            and ($4 or follower.status <> 'DEAD')
            and follower.id > listed.id
        limit $3
    ) as behind
) as depth on true
order by listed.status = 'WAITING', listed.since, listed.id
