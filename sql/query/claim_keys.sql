-- Locks the next due rows of some keys, as `claim_walk` does along the table: for keys whose last events just went
-- through, and whose next ones may be far behind what else the walk has passed.
-- Parameters: those of the parts; $7 at most so many rows of each key; $8 the keys; $9 as `claim_walk`'s $10.
-- Index: the one on key and id of unfinished rows. Locks: as `claim_walk`.
select
    outbox.id::bigint,
    outbox.bytes,
    outbox.ordering_key
from unnest($8) as wanted (key)
cross join lateral (
    select
        id,
        {size} as bytes,
        ordering_key::text
    from {table}
    where (ordering_key collate "C") = wanted.key
        and ordering_key is not null
        and status in ('WAITING', 'FAILED')
        and id <> all ($9)
        and {due}
    order by id
    limit $7
    for no key update skip locked
) as outbox
