-- Whether the session is the server's own: a pooler does not pass on what a session is opened with.
-- No parameters; no locks.
select current_setting('outboxd.direct', true) is not null
