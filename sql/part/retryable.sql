-- Whether `retry` has anything to do with a row. Not FAILED ones that it made so itself (see retry.sql).
(
    outbox.status::text in ('DEAD', 'EXPIRED', 'PUBLISHED')
    or (
        outbox.status::text = 'FAILED'
        and ($15 or outbox.available_at > statement_timestamp())
        and not coalesce(starts_with(outbox.last_error, $22) or starts_with(outbox.last_error, $23), false)
    )
)
