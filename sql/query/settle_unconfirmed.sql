-- Notes on events that they were sent without learning whether they arrived. Status and count stay.
-- Parameters, one entry per event: $1 ids, $2 back-offs in seconds (null: due at once), $3 notes.
-- Index: primary key. Locks: the rows, held by the claim already.
update {table} as outbox
set available_at = coalesce(
        clock_timestamp() + make_interval(secs => settled.backoff * (0.5 + random() / 2)),
        outbox.available_at
    ),
    last_retried_at = clock_timestamp(),
    last_error = settled.note
from unnest($1, $2, $3) as settled (id, backoff, note)
where outbox.id = settled.id
    and outbox.status in ('WAITING', 'FAILED')
