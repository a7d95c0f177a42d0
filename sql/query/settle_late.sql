-- Marks events as published whose confirm outlived the claim that sent them.
-- Parameters: $1 their ids; $2 how last_error begins where an operator has sent an event again since: that stands.
-- Index: primary key. Locks: the rows; one that another relay holds is passed over, it is sending the event again.
-- Only confirms are written without a claim: they are facts. A refusal would count twice.
update {table}
set status = 'PUBLISHED',
    published_at = clock_timestamp(),
    last_retried_at = clock_timestamp(),
    last_error = null
where id in (
    select id
    from {table}
    where id = any($1)
        and status in ('WAITING', 'FAILED')
        and not coalesce(starts_with(last_error, $2), false)
    for no key update skip locked
)
