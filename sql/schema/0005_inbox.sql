-- What a consumer has handled: one row for each event and consumer. It lives in the consumer's database, which need not
-- be the one of the outbox. Idempotent.

create table if not exists event_inbox (
    consumer    text        not null,
    event_id    text        not null,
    received_at timestamptz not null default clock_timestamp(),
    primary key (consumer, event_id)
);
