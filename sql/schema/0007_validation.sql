-- Looks through the table for what its CHECK on ordering_key, which 0001 adds NOT VALID, might refuse. To be run in a
-- transaction of its own: it keeps out other DDL and vacuum, and neither readers nor writers. Idempotent.

do $do$
begin
    if exists (
        select from pg_constraint
        where conrelid = to_regclass({table_name})
            and conname = 'event_outbox_ordering_key_fits_an_index'
            and not convalidated
    ) then
        alter table {table} validate constraint event_outbox_ordering_key_fits_an_index;
    end if;
end
$do$;
