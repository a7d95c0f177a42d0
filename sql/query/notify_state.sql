-- The text of the trigger's function, and whether the trigger that calls it is there and enabled for ordinary sessions.
-- Parameters: $1 the function's signature with quoted names, $2 the table's quoted name.
-- No rows when there is no such function. Reads the catalogue only.
select prosrc, exists (
    select
    from pg_trigger
    where tgrelid = to_regclass($2) and tgfoid = pg_proc.oid and tgenabled in ('O', 'A')
)
from pg_proc
where oid = to_regprocedure($1)
