-- Locks rows again whose claim was rolled back because the table refused what became of one of them: those that nobody has
-- claimed or tried since.
-- Parameters: $1 their ids; $2 how long ago they were claimed, in seconds.
-- Index: primary key. Locks: as `claim_walk`.
select id::bigint
from {table}
where id = any($1)
    and status in ('WAITING', 'FAILED')
    and (last_retried_at is null or last_retried_at < statement_timestamp() - make_interval(secs => $2))
for no key update skip locked
