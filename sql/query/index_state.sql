-- Whether an index is there and usable, and what it is of.
-- Parameters: $1 the index's quoted name, $2 the table's quoted name.
-- No rows when nothing of that name exists. Reads the catalogue only.
select
    coalesce(index.indrelid = to_regclass($2), false),
    coalesce(index.indisvalid, false),
    coalesce(substring(pg_get_indexdef(relation.oid) from ' USING (.*)$'), '')
from pg_class as relation
left join pg_index as index on index.indexrelid = relation.oid
where relation.oid = to_regclass($1)
