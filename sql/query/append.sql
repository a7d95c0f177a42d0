-- Appends events in their order, through the table's function, in the caller's transaction.
-- Parameters, arrays of one length: $1 types, $2 payloads, $3 ordering keys, $4 headers as JSON text, $5 lives in
-- seconds, $6 delays in seconds, $7 due times in seconds since 1970 (instead of a delay), $8 exchanges,
-- $9 routing keys, $10 event ids. All but $1, $2 and $10 may hold nulls.
-- Returns the event ids in the same order. Locks: none that keep others waiting.
-- Seconds, because the days of an interval are the calendar's, which may have 23 or 25 hours.
select
    {append}(
        event_type => event.event_type,
        payload => event.payload,
        ordering_key => event.ordering_key,
        headers => event.headers::jsonb,
        expires_in => make_interval(secs => event.expires_in),
        available_in => make_interval(
            secs => coalesce(
                event.available_at - extract(epoch from clock_timestamp())::float8,
                event.available_in
            )
        ),
        exchange => event.exchange,
        routing_key => event.routing_key,
        event_id => event.event_id
    )
from unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::float8[],
    $6::float8[], $7::float8[], $8::text[], $9::text[], $10::text[]
) with ordinality as event (
    event_type, payload, ordering_key, headers, expires_in,
    available_in, available_at, exchange, routing_key, event_id, number
)
order by event.number
