-- Whether the schema that the table is to live in is there.
-- Parameters: $1 its quoted name.
-- Asked first, because `create schema if not exists` wants the right to create one even when it exists.
select to_regnamespace($1) is not null
