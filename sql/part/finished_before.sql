-- Whether a row was finished before $15 seconds ago. PUBLISHED has a time of its own. An EXPIRED or SKIPPED row
-- carries its end in available_at; one that an older relay or a person marked has only the others. A DEAD one ended
-- with its last attempt. A time to come tells nothing.
coalesce(
    case when outbox.status::text = 'PUBLISHED' then outbox.published_at end,
    greatest(
        outbox.created_at,
        outbox.last_retried_at,
        case when outbox.available_at <= statement_timestamp() then outbox.available_at end,
        case when outbox.expired_at <= statement_timestamp() then outbox.expired_at end
    )
) <= statement_timestamp() - make_interval(secs => $15)
