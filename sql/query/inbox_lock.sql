-- Lets one `init` of the inbox work at a time: `create table if not exists` fails when another one is creating it.
-- No parameters. Locks: an advisory one, until the transaction ends; waited for.
select pg_advisory_xact_lock(hashtextextended('outboxd init event_inbox', 0))
