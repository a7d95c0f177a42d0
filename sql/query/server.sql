-- What the operator wants to know of the server.
-- No parameters; no locks.
select
    current_setting('server_version'),
    pg_is_in_recovery() or current_setting('transaction_read_only')::boolean
