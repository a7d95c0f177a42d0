-- Opt-in (`init --notify`): tells the relays that listen of each statement that wrote events, at its commit. The channel
-- is named after the table's oid, so that it holds for any name and schema. NOTIFY takes a lock of the whole server, all
-- of its databases, for the time of the commit: see the README for what that costs writers. A transaction that has told
-- cannot be prepared for a two-phase commit. Applied again, it replaces itself.

create or replace function {notify}() returns trigger
language plpgsql
as $body$
begin
    perform pg_catalog.pg_notify('outboxd_' || tg_relid, '');
    return null;
end
$body$;

create or replace trigger {trigger}
    after insert on {table}
    for each statement execute function {notify}();
