-- The keys whose first unfinished event is not to be had for a while: dead, backing off, or scheduled. Part of several
-- statements.
-- Parameters: $1 max_age in seconds, or null; $2 max_failures; $3 at most so many keys.
-- Index: the one of unfinished events that may hold their key back, of which it reads the first of each key; and the
-- one on key and id. Locks: none. A hint only: what is not in it is found out by `claim_order`. It reads one page when
-- nothing is held back, and takes 90 ms for 5,000 keys, once per walk.
with recursive held as (
    (
        select ordering_key::text as key, id, 1 as number
        from {table}
        where ordering_key is not null
            and status in ({holding})
            and (status = 'DEAD' or available_at is not null)
        order by (ordering_key collate "C"), id
        limit 1
    )
    union all
    select later.key, later.id, held.number + 1
    from held
    cross join lateral (
        select ordering_key::text as key, id
        from {table}
        where ordering_key is not null
            and status in ({holding})
            and (status = 'DEAD' or available_at is not null)
            and (ordering_key collate "C") > held.key
        order by (ordering_key collate "C"), id
        limit 1
    ) as later
    where held.number < $3
)
select held.key
from held
join {table} as head using (id)
where (
        head.status = 'DEAD'
        or (
            head.available_at > statement_timestamp()
            and (head.expired_at is null or head.expired_at > statement_timestamp())
            and not coalesce(
                head.status = 'WAITING' and head.created_at < statement_timestamp() - make_interval(secs => $1),
                false
            )
            and not (head.status = 'FAILED' and coalesce(head.fail_count, 0) >= $2)
        )
    )
    and not exists (
        select
        from {table} as earlier
        where (earlier.ordering_key collate "C") = held.key
            and earlier.ordering_key is not null
            and earlier.status in ({holding})
            and earlier.id < held.id
    )
