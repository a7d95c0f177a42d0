-- Locks the due rows among some events, by their event ids, as `claim_walk` does along the table: for an application that
-- wants to have published at once what it just committed.
-- Parameters: those of the parts; $7 the event ids.
-- Index: the unique one on event_id. Locks: as `claim_walk`.
select
    outbox.id::bigint,
    outbox.bytes,
    outbox.ordering_key
from unnest($7) as wanted (event_id)
cross join lateral (
    select
        id,
        {size} as bytes,
        ordering_key::text
    from {table}
    where event_id = wanted.event_id
        and status in ('WAITING', 'FAILED')
        and {due}
    for no key update skip locked
) as outbox
