-- The database's time, in seconds since 1970.
-- No parameters; no locks.
select extract(epoch from clock_timestamp())::float8
