-- Notes every change of an event, in the transaction that makes it, so that each can be judged afterwards and nothing
-- that is purged is forgotten.
create table history (
    number     bigint generated always as identity primary key,
    at         timestamptz not null default clock_timestamp(),
    event_id   text not null,
    id         bigint not null,
    operation  text not null,
    old_status text,
    new_status text,
    old_count  integer,
    new_count  integer,
    last_error text,
    who        text not null default current_setting('application_name')
);

create function note() returns trigger
language plpgsql
as $body$
begin
    insert into history (event_id, id, operation, old_status, new_status, old_count, new_count, last_error)
    values (
        coalesce(new.event_id, old.event_id), coalesce(new.id, old.id), tg_op,
        old.status, new.status, old.fail_count, new.fail_count, new.last_error
    );
    return null;
end
$body$;

create trigger note after insert or update or delete on event_outbox for each row execute function note();

-- Who writes for a key updates its row first, and so is alone on it until the commit.
create table chaos_key (key text primary key, n bigint not null default 0);
