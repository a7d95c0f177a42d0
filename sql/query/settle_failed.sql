-- Marks refused events as failed, each due again after a moment between half its back-off and all of it.
-- Parameters, one entry per event: $1 ids, $2 fail counts, $3 back-offs in seconds, $4 reasons.
-- Index: primary key. Locks: the rows, held by the claim already.
update {table} as outbox
set status = 'FAILED',
    fail_count = settled.fail_count,
    available_at = clock_timestamp() + make_interval(secs => settled.backoff * (0.5 + random() / 2)),
    last_retried_at = clock_timestamp(),
    last_error = settled.reason
from unnest($1, $2, $3, $4) as settled (id, fail_count, backoff, reason)
where outbox.id = settled.id
    and outbox.status in ('WAITING', 'FAILED')
