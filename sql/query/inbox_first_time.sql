-- Writes down that a consumer handles an event, in the caller's transaction; no row when it is written down already.
-- Parameters: $1 consumer, $2 event id.
-- By the primary key. Waits for another transaction that writes the same: it is the first time if that one is rolled
-- back.
insert into event_inbox (consumer, event_id)
values ($1, $2)
on conflict do nothing
