-- Makes room for a new index where a concurrent build was interrupted and left an unusable one.
-- No parameters; cannot run in a transaction. Locks: none that keep readers or writers out.
drop index concurrently if exists {index}
