-- The session's own time zone, in which times without one are read when no setting names another.
-- No parameters; no locks.
select current_setting('TimeZone')
