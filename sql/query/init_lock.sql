-- Takes the lock that lets one `init` work at a time, if it is free. It ends with the session.
-- Parameters: $1 the table's quoted name.
-- Asked for again and again rather than waited for: a session that waits holds a snapshot, and building an index
-- concurrently waits for all snapshots, so two inits would wait for each other.
select pg_try_advisory_lock(hashtextextended('outboxd init ' || $1, 0))
