-- Which of these events are unfinished still.
-- Parameters: $1 their ids.
-- Index: primary key. Locks: none.
select id::bigint
from {table}
where id = any($1)
    and status in ('WAITING', 'FAILED')
