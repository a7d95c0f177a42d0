-- Writes one event into the outbox.
-- Parameters: $1 event id, $2 type, $3 payload, $4 ordering key, $5 headers as JSON text, $6 exchange,
-- $7 routing key, $8 life in seconds, $9 delay in seconds; all from $4 on may be null.
insert into {table} (
    event_id, event_type, payload, status, created_at, fail_count,
    ordering_key, headers, exchange, routing_key, expired_at, available_at
)
values (
    $1, $2, {payload_parameter}, 'WAITING', clock_timestamp(), 0,
    $4, $5::jsonb, $6, $7,
    clock_timestamp() + make_interval(secs => $8),
    clock_timestamp() + make_interval(secs => $9)
)
