-- The schema in which the search path finds the table.
-- Parameters: $1 the table's quoted name.
-- No rows when there is no such table. Reads the catalogue only.
select nspname::text
from pg_class
join pg_namespace on pg_namespace.oid = relnamespace
where pg_class.oid = to_regclass($1)
