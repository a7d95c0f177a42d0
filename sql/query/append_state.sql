-- The text of the function that appends, where there is one.
-- Parameters: $1 its signature with quoted names.
-- No rows when there is none. Reads the catalogue only.
select prosrc from pg_proc where oid = to_regprocedure($1)
