-- Fetches locked rows, payloads as the bytes stored.
-- Parameters: $1 their ids; $2 max_age in seconds, or null; $3 payload_max and $4 the most text that can be
-- headers, both in bytes: what is larger is refused anyway and stays in the table.
-- Index: primary key. Locks: none beyond those the claim holds.
--
-- Texts that a message cannot carry beyond 255 bytes are cut just above that. Times become what a message can
-- carry, by the session's zone where they have none; 'infinity' becomes none.
select
    outbox.id::bigint,
    left(coalesce(event_id::text, ''), 256),
    left(coalesce(event_type::text, ''), 256),
    left(ordering_key, 256),
    octet_length(headers::text),
    case when octet_length(headers::text) <= $4 then headers::text end,
    left(exchange, 256),
    left(routing_key, 256),
    case
        when isfinite(created_at) and created_at >= 'epoch'::timestamptz then
            floor(extract(epoch from created_at::timestamptz))::bigint
    end,
    case
        when expired_at = '-infinity' then 0
        when isfinite(expired_at) then
            greatest(0, floor(1000 * extract(epoch from expired_at - statement_timestamp())))::bigint
    end,
    coalesce(status = 'WAITING' and created_at < statement_timestamp() - make_interval(secs => $2), false),
    status = 'FAILED',
    least(coalesce(fail_count, 0), 2147483647)::integer,
    left(last_error, 1000),
    octet_length({payload_text}),
    case when octet_length({payload_text}) <= $3 then payload end
from {table} as outbox
where outbox.id = any($1)
order by outbox.id
