-- Who and what the server is, and who we are there.
-- No parameters; no locks.
select
    current_setting('server_version'),
    current_setting('server_version_num')::integer,
    current_user::text,
    pg_is_in_recovery()
