-- Locks the next due rows in id order, and says how large they are and which key they have. They stay locked, and so
-- are this relay's alone, until the claim's transaction ends.
-- Parameters: those of the parts; $7 at most so many rows; $8 only rows after this id; $9 but for the events of these
-- keys, which cannot be sent now whatever else is due; $10 and but for these rows, of which a confirm is in hand.
-- Index: the partial one on (id) of unfinished rows. Locks: the rows, against other relays' claims and against
-- changes; rows that are locked already are passed over.
--
-- Plan: an index scan that stops at $7 rows, whatever the statistics say (see `claim_begin`). Measured on PostgreSQL 15,
-- two cores, for 500 rows:
--   10,000 waiting                                        16 pages and the 500 locks    0.6 ms
--   2 million waiting and 5 million published             17 pages and the locks        0.6 ms, never analysed or analysed
--   the same, 200,000 of them just published, behind a
--   snapshot from before                                  5,600 pages and the locks     27 to 33 ms
--   the same after the snapshot's end and a vacuum        17 pages and the locks        0.6 ms
--   behind 100,000 followers of two keys in $9            2,900 pages and the locks     27 to 29 ms
select
    outbox.id::bigint,
    {size},
    ordering_key::text
from {table} as outbox
where status in ('WAITING', 'FAILED')
    and outbox.id > $8
    and outbox.id <> all ($10)
    and (ordering_key is null or (ordering_key collate "C") <> all ($9))
    and {due}
order by outbox.id
limit $7
for no key update skip locked
