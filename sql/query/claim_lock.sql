-- Locks the next due rows in id order, and says how large they are. They stay locked, and so are this relay's
-- alone, until the claim's transaction ends.
-- Parameters: $1 only rows after this id; $2 at most so many rows; $3 min_age and $4 max_age in seconds ($4 null
-- for none); $5 max_failures; $6 how long, in seconds, this drain has been going on;
-- $7 payload_max and $8 the most text that can be headers, in bytes: what is larger is not fetched, and counts 0.
-- Index: the partial one on (id) of unfinished rows. Locks: the rows, against other relays' claims and against
-- changes; rows that are locked already are passed over.
--
-- Due is what may be sent now: old enough or failed before, and its due time reached. The last three branches
-- are rows to be ended unsent; they are claimed whatever their due time, so that nothing waits unseen. An event is
-- tried once per drain: one that is due again at once waits for the next, or a drain could go on for ever.
select
    outbox.id::bigint,
    coalesce(case when octet_length({payload_text}) <= $7 then octet_length({payload_text}) end, 0)::bigint
        + coalesce(case when octet_length(headers::text) <= $8 then octet_length(headers::text) end, 0)::bigint
from {table} as outbox
where status in ('WAITING', 'FAILED')
    and outbox.id > $1
    and (
        (
            (available_at is null or available_at <= statement_timestamp())
            and (
                status = 'FAILED'
                or created_at is null
                or created_at <= statement_timestamp() - make_interval(secs => $3)
            )
            and (last_retried_at is null or last_retried_at < statement_timestamp() - make_interval(secs => $6))
        )
        or expired_at <= statement_timestamp()
        or (status = 'WAITING' and created_at < statement_timestamp() - make_interval(secs => $4))
        or (status = 'FAILED' and fail_count >= $5)
    )
order by outbox.id
limit $2
for no key update skip locked
