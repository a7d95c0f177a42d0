-- Whether someone has chosen parameters of autovacuum for the table.
-- Parameters: $1 the table's quoted name.
-- Reads the catalogue only.
select coalesce(reloptions::text like '%autovacuum%', false)
from pg_class
where oid = to_regclass($1)
