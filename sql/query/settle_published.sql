-- Marks confirmed events as published.
-- Parameters: $1 their ids.
-- Index: primary key. Locks: the rows, held by the claim already.
-- The status is asked for again, although the claim holds the rows: whatever was decided elsewhere stands.
update {table}
set status = 'PUBLISHED',
    published_at = clock_timestamp(),
    last_retried_at = clock_timestamp(),
    last_error = null
where id = any($1)
    and status in ('WAITING', 'FAILED')
