-- Everything about one event, and what decides whether it is due. Its payload only when it is asked for.
-- Parameters: $1 the row's id, or null; $2 its event id; $3 min_age in seconds; $4 max_age in seconds, or null;
-- $5 max_failures; $6 whether to fetch the payload; $7 the most text that can be headers, in bytes.
-- Index: primary key and the unique one on event_id. Locks: none.
select
    {listed},
    {time outbox.last_retried_at},
    {time outbox.expired_at},
    {time outbox.published_at},
    octet_length(outbox.headers::text),
    case when octet_length(outbox.headers::text) <= $7 then outbox.headers::text end,
    left(outbox.exchange, 1000),
    left(outbox.routing_key, 1000),
    octet_length({payload_text})::bigint,
    case when $6 then outbox.payload end,
    coalesce(outbox.expired_at <= statement_timestamp(), false),
    coalesce(outbox.created_at < statement_timestamp() - make_interval(secs => $4), false),
    coalesce(outbox.fail_count, 0) >= $5,
    -- What is left until it is due, in seconds.
    extract(epoch from case
        when outbox.available_at > statement_timestamp() and isfinite(outbox.available_at)
            then outbox.available_at - statement_timestamp()
    end)::float8,
    coalesce(outbox.available_at > statement_timestamp(), false),
    extract(epoch from outbox.created_at + make_interval(secs => $3) - statement_timestamp())::float8,
    {time (outbox.created_at + make_interval(secs => $3))},
    -- Without the right to change it, nobody can ask whether it is locked.
    not pg_is_in_recovery() and has_any_column_privilege($8, 'UPDATE')
from {table} as outbox
where outbox.id = $1 or outbox.event_id = $2
order by (outbox.id = $1) desc nulls last
limit 1
