-- Whether an unfinished event is to be claimed now. A condition, part of several statements.
-- Parameters: $1 min_age and $2 max_age in seconds ($2 null for none); $3 max_failures; $4 how long, in seconds, this
-- drain has been going on.
--
-- The first branch is what may be sent: old enough or failed before, and its due time reached. An event is tried once
-- per drain: one that is due again at once waits for the next, or a drain could go on for ever. The other branches
-- are rows to be ended unsent; they are claimed whatever their due time, so that nothing waits unseen.
(
    (
        (available_at is null or available_at <= statement_timestamp())
        and (
            status = 'FAILED'
            or created_at is null
            or created_at <= statement_timestamp() - make_interval(secs => $1)
        )
        and (last_retried_at is null or last_retried_at < statement_timestamp() - make_interval(secs => $4))
    )
    or expired_at <= statement_timestamp()
    or (status = 'WAITING' and created_at < statement_timestamp() - make_interval(secs => $2))
    or (status = 'FAILED' and fail_count >= $3)
)
