-- Why some events were not claimed, by their event ids.
-- Parameters: $1 the event ids.
-- Index: the unique one on event_id, and the one on key and id of unfinished rows. Locks: none.
select
    wanted.event_id,
    outbox.status,
    outbox.is_later,
    outbox.is_held,
    outbox.ordering_key
from unnest($1) as wanted (event_id)
left join lateral (
    select
        status::text,
        ordering_key::text,
        coalesce(available_at > statement_timestamp(), false) as is_later,
        ordering_key is not null and exists (
            select
            from {table} as earlier
            where (earlier.ordering_key collate "C") = (own.ordering_key collate "C")
                and earlier.ordering_key is not null
                and earlier.status in ({holding})
                and earlier.id < own.id
        ) as is_held
    from {table} as own
    where own.event_id = wanted.event_id
) as outbox on true
