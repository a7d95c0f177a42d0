-- The channel on which commits are told, and whether a trigger of the table tells of them.
-- Parameters: $1 the table's quoted name, $2 the quoted name of the trigger's function, with ().
-- The channel is null when there is no such table. Reads the catalogue only.
select 'outboxd_' || to_regclass($1)::oid, exists (
    select
    from pg_trigger
    where tgrelid = to_regclass($1) and tgfoid = to_regprocedure($2) and tgenabled in ('O', 'A')
)
