-- The first unfinished events of each claimed key, in id order: as many as are locked by the claim, and one more.
-- Parameters, one entry per key: $1 keys, $2 how many of its rows the claim has locked; for all: $3 rows that the
-- broker has confirmed, and which the table does not let be marked: nobody waits for them.
-- Index: the one on key and id of unfinished rows. Locks: none.
--
-- A statement of its own, after the locks: under READ COMMITTED it sees what other relays committed until then, which
-- the statement that took the locks does not. Whatever is in this list and not locked by the claim is in other hands,
-- or not due, or dead: its followers are not to be sent. For 500 keys it reads 2,500 pages of the index in 9 ms.
select
    claimed.number,
    unfinished.id::bigint
from unnest($1, $2) with ordinality as claimed (key, locked, number)
cross join lateral (
    select id
    from {table}
    where (ordering_key collate "C") = claimed.key
        and ordering_key is not null
        and status in ({holding})
        and id <> all ($3)
    order by id
    limit claimed.locked + 1
) as unfinished
