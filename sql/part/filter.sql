-- Which rows an operator means. Each parameter may be null, and is no condition then.
-- Parameters: $1 ids; $2 LIKE patterns of event types; $3 ordering key; $4 statuses; $5 least and $6 greatest age
-- since creation in seconds; $7 earliest and $8 latest time of publication, in seconds since 1970; $9 a part of last_error.
($1::bigint[] is null or outbox.id = any($1))
and ($2::text[] is null or outbox.event_type::text like any($2))
and ($3::text is null or (outbox.ordering_key collate "C") = $3)
and ($4::text[] is null or outbox.status::text = any($4))
and ($5::float8 is null or outbox.created_at <= statement_timestamp() - make_interval(secs => $5))
and ($6::float8 is null or outbox.created_at >= statement_timestamp() - make_interval(secs => $6))
and ($7::float8 is null or outbox.published_at >= to_timestamp($7))
and ($8::float8 is null or outbox.published_at <= to_timestamp($8))
and ($9::text is null or strpos(outbox.last_error, $9) > 0)
