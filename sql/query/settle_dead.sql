-- Marks events as dead: refused for the last time, or unsendable. They wait for an operator.
-- Parameters, one entry per event: $1 ids, $2 fail counts, $3 reasons.
-- Index: primary key. Locks: the rows, held by the claim already.
update {table} as outbox
set status = 'DEAD',
    fail_count = settled.fail_count,
    last_retried_at = clock_timestamp(),
    last_error = settled.reason
from unnest($1, $2, $3) as settled (id, fail_count, reason)
where outbox.id = settled.id
    and outbox.status in ('WAITING', 'FAILED')
