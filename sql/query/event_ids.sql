-- The rows of these events.
-- Parameters: $1 event ids.
-- Index: the unique one on event_id. Locks: none.
select id::bigint
from {table}
where event_id = any($1)
