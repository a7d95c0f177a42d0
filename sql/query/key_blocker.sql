-- The first event of a key, before this one, that holds it back: it is unfinished and cannot be sent now.
-- Parameters: $1 the key; $2 the event's id; $3 min_age in seconds; $4 max_age in seconds, or null; $5 max_failures;
-- $6 whether a DEAD event holds its key back.
-- Index: the partial one of keys. Locks: none.
select id::bigint
from {table}
where ordering_key is not null
    and (ordering_key collate "C") = $1
    and status in ('WAITING', 'FAILED', 'DEAD')
    and id < $2
    and (
        (status = 'DEAD' and $6)
        or (
            status <> 'DEAD'
            and (
                available_at > statement_timestamp()
                or (status = 'WAITING' and created_at > statement_timestamp() - make_interval(secs => $3))
            )
            -- Whoever is to be ended is taken whenever it is due.
            and not coalesce(expired_at <= statement_timestamp(), false)
            and not (status = 'FAILED' and coalesce(fail_count, 0) >= $5)
            and not coalesce(
                status = 'WAITING' and created_at < statement_timestamp() - make_interval(secs => $4), false
            )
        )
    )
order by id
limit 1
