-- Which of these events are unfinished still, but for those that an operator has sent again since.
-- Parameters: $1 their ids; $2 how last_error begins then.
-- Index: primary key. Locks: none.
select id::bigint
from {table}
where id = any($1)
    and status in ('WAITING', 'FAILED')
    and not coalesce(starts_with(last_error, $2), false)
