-- The outbox table. Idempotent: applying it again, or to a table that has only its first nine columns, adds what
-- is missing and changes nothing that is there.

create table if not exists {table} (
    id              bigint generated always as identity primary key,
    event_id        varchar(26) not null unique,
    event_type      text        not null,
    payload         text        not null,
    status          text        not null default 'WAITING',
    created_at      timestamptz not null default clock_timestamp(),
    last_retried_at timestamptz,
    expired_at      timestamptz,
    fail_count      integer     not null default 0,
    published_at    timestamptz,

    constraint event_outbox_status_is_known
        check (status in ('WAITING', 'FAILED', 'PUBLISHED', 'DEAD', 'EXPIRED', 'SKIPPED')),
    constraint event_outbox_fail_count_is_a_count
        check (fail_count >= 0),
    constraint event_outbox_only_published_has_a_time_of_it
        check (published_at is null or status = 'PUBLISHED')
);

-- Added apart, so that a table of the original nine columns gets them too. All may be ignored by the application.
alter table {table}
    add column if not exists headers       jsonb,
    add column if not exists exchange      text,
    add column if not exists routing_key   text,
    add column if not exists available_at  timestamptz,
    add column if not exists published_at  timestamptz,
    add column if not exists last_error    text;

-- A column that comes with a CHECK has the whole table looked through while nobody may read or write it. NOT VALID, it has
-- not: 0007 makes up for that. A column of that name that was there stays as it is.
do $do$
begin
    if not exists (
        select from pg_attribute
        where attrelid = to_regclass({table_name}) and attname = 'ordering_key' and not attisdropped
    ) then
        alter table {table}
            add column ordering_key text,
            add constraint event_outbox_ordering_key_fits_an_index
                check (octet_length(ordering_key) <= 1024) not valid;
    end if;
end
$do$;
