-- The next rows in id order, without their payloads: one page of a walk through the table.
-- Parameters: $1 ids, or null for all; $3 a key; $10 only rows after this id; $11 at most so many rows;
-- $13 1 where only WAITING and FAILED rows are wanted, 2 where only FAILED and DEAD ones; $14 whether only unfinished ones
-- of the key are.
-- Index: primary key, or where $13 or $14 says so the partial one of unfinished rows, of refused ones, or of keys.
select
    outbox.id::bigint as id,
    outbox.event_id::text as event_id,
    outbox.event_type::text as event_type,
    outbox.ordering_key,
    outbox.status,
    outbox.created_at,
    outbox.last_retried_at,
    outbox.expired_at,
    outbox.fail_count,
    outbox.available_at,
    outbox.published_at,
    outbox.last_error
from {table} as outbox
where outbox.id {beyond} $10
    and ($1::bigint[] is null or outbox.id = any($1))
    and ($13 <> 1 or outbox.status in ('WAITING', 'FAILED'))
    and ($13 <> 2 or outbox.status in ('FAILED', 'DEAD'))
    and (
        not $14
        or (
            outbox.ordering_key is not null
            and outbox.status in ('WAITING', 'FAILED', 'DEAD')
            and (outbox.ordering_key collate "C") = $3
        )
    )
order by outbox.id {direction}
limit $11
