-- Marks events as expired: their time passed before they were sent.
-- Parameters, one entry per event: $1 ids, $2 reasons.
-- Index: primary key. Locks: the rows, held by the claim already.
update {table} as outbox
set status = 'EXPIRED',
    last_error = settled.reason
from unnest($1, $2) as settled (id, reason)
where outbox.id = settled.id
    and outbox.status in ('WAITING', 'FAILED')
