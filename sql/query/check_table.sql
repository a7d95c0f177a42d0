-- The tables of a name, and what the role may do there. One that the name means comes first.
-- Parameters: $1 the schema, or null; $2 the table's name; $3 the columns that a relay reads, $4 those that it writes.
-- Reads the catalogue only, and needs no right on the table or its schema. Locks: none.
select
    namespace.nspname::text,
    $1 is not null or pg_table_is_visible(relation.oid),
    has_schema_privilege(namespace.oid, 'usage'),
    coalesce(known.are_readable, true),
    coalesce(known.are_writable, true),
    has_table_privilege(relation.oid, 'delete'),
    row_security_active(relation.oid),
    pg_relation_size(relation.oid)
from pg_class as relation
join pg_namespace as namespace on namespace.oid = relation.relnamespace
cross join lateral (
    select
        bool_and(has_column_privilege(relation.oid, attnum, 'select')) filter (where attname = any($3)) as are_readable,
        bool_and(has_column_privilege(relation.oid, attnum, 'update')) filter (where attname = any($4)) as are_writable
    from pg_attribute
    where attrelid = relation.oid
        and not attisdropped
) as known
where relation.relname = $2
    and relation.relkind in ('r', 'p', 'v', 'f')
    and ($1 is null or namespace.nspname = $1)
order by 2 desc, 1
limit 20
