-- Locks the next due rows in id order, and says how large they are and which key they have. They stay locked, and so
-- are this relay's alone, until the claim's transaction ends.
-- Parameters: those of the parts; $7 at most so many rows; $8 only rows after this id; $9 but for the events of these
-- keys, which cannot be sent now whatever else is due.
-- Index: the partial one on (id) of unfinished rows. Locks: the rows, against other relays' claims and against
-- changes; rows that are locked already are passed over.
select
    outbox.id::bigint,
    {size},
    ordering_key::text
from {table} as outbox
where status in ('WAITING', 'FAILED')
    and outbox.id > $8
    and (ordering_key is null or (ordering_key collate "C") <> all ($9))
    and {due}
order by outbox.id
limit $7
for no key update skip locked
