-- Marks events as expired: their time passed before they were sent. The time of it goes into available_at, from which
-- retention counts: an event that expired long before anyone saw it must not be purged unseen.
-- Parameters, one entry per event: $1 ids, $2 reasons.
-- Index: primary key. Locks: the rows, held by the claim already.
update {table} as outbox
set status = 'EXPIRED',
    available_at = clock_timestamp(),
    last_error = settled.reason
from unnest($1, $2) as settled (id, reason)
where outbox.id = settled.id
    and outbox.status in ('WAITING', 'FAILED')
