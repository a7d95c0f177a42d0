-- What the relay looks through. Each of these takes as long to build as a scan of the table, and writers would wait for
-- it: on a large live table run them alone and with `concurrently`, as `outboxd init` does.

-- What the relay walks through, in the order in which it sends. Finished rows, however many, are not in it.
create index {concurrently} if not exists {index_unfinished} on {table} (id) where status in ('WAITING', 'FAILED');

-- The unfinished events of each key, in their order. By bytes, so that no change of a collation can break it.
create index {concurrently} if not exists {index_keys} on {table} ((ordering_key collate "C"), id)
    where ordering_key is not null and status in ('WAITING', 'FAILED', 'DEAD');

-- Those of them that may hold their key back. Most events are never in it.
create index {concurrently} if not exists {index_held} on {table} ((ordering_key collate "C"), id)
    where ordering_key is not null
        and status in ('WAITING', 'FAILED', 'DEAD')
        and (status = 'DEAD' or available_at is not null);

-- What an operator looks for. Written only when an event is refused.
create index {concurrently} if not exists {index_refused} on {table} (id) where status in ('FAILED', 'DEAD');
