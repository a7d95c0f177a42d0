-- What an operator sees of a row in a list. Times in UTC; texts cut, so that one odd row cannot fill the screen.
outbox.id::bigint,
left(outbox.event_id, 256),
left(outbox.event_type, 256),
left(outbox.ordering_key, 1024),
outbox.status::text,
coalesce(outbox.fail_count, 0)::bigint,
{time outbox.created_at},
extract(epoch from statement_timestamp() - case when isfinite(outbox.created_at) then outbox.created_at end)::float8,
{time outbox.available_at},
left(outbox.last_error, 1000)
