-- Marks events as dead: refused for the last time, or unsendable. They wait for an operator.
-- Parameters, one entry per event: $1 ids, $2 fail counts, $3 reasons.
-- An event that is ended without an attempt keeps its count, and the time of its last attempt.
-- Index: primary key. Locks: the rows, held by the claim already.
update {table} as outbox
set status = 'DEAD',
    fail_count = settled.fail_count,
    last_retried_at = case
        when outbox.fail_count is distinct from settled.fail_count then clock_timestamp()
        else outbox.last_retried_at
    end,
    last_error = settled.reason
from unnest($1, $2, $3) as settled (id, fail_count, reason)
where outbox.id = settled.id
    and outbox.status in ('WAITING', 'FAILED')
