-- Which columns the table has, of which types, and whether its constraints know our statuses.
-- Parameters: $1 the table's quoted name.
-- No rows when there is no such table. Reads the catalogue; writing out the constraints takes the weakest lock on
-- the table, so it waits behind DDL.
select
    attribute.attname::text,
    format_type(attribute.atttypid, null),
    case
        when type.typtype = 'e' then
            array(select enumlabel::text from pg_enum where enumtypid = type.oid)
    end,
    (
        select string_agg(pg_get_constraintdef(c.oid), ' and ')
        from pg_constraint as c
        where c.conrelid = attribute.attrelid
            and c.contype = 'c'
            and c.conkey @> array[attribute.attnum]
    ),
    -- Those of them that may list our statuses.
    (
        select string_agg(quote_ident(c.conname), ', ' order by c.conname)
        from pg_constraint as c
        where c.conrelid = attribute.attrelid
            and c.contype = 'c'
            and c.conkey @> array[attribute.attnum]
            and pg_get_constraintdef(c.oid) like '%''WAITING''%'
            and pg_get_constraintdef(c.oid) like '%''PUBLISHED''%'
    )
from pg_attribute as attribute
join pg_type as type on type.oid = attribute.atttypid
where attribute.attrelid = to_regclass($1)
    and attribute.attnum > 0
    and not attribute.attisdropped
order by attribute.attnum
