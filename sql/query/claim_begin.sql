-- Opens a claim's transaction. The row locks taken in it are the lease, and these limits are the lease's length:
-- the server itself ends a claim whose relay was frozen, or whose host or network vanished.
--
-- SET LOCAL, because a transaction pooler drops or refuses settings of the session. READ COMMITTED by name,
-- because a role's default may be stricter, and a claim would then fail with 40001 beside another relay.
-- The plan must not depend on statistics: on a table that was never analysed the planner would sort the whole
-- backlog for each claim. Switching the alternatives off leaves the walk along the index of unfinished rows.
begin isolation level read committed read write;
set local statement_timeout = '15s';
set local lock_timeout = '2s';
set local idle_in_transaction_session_timeout = {claim_max_idle_ms};
set local tcp_keepalives_idle = 10;
set local tcp_keepalives_interval = 5;
set local tcp_keepalives_count = 3;
set local tcp_user_timeout = '10s';
set local time zone {time_zone};
set local enable_sort = off;
set local enable_bitmapscan = off;
set local enable_hashjoin = off;
set local enable_mergejoin = off;
set local enable_seqscan = off;
set local jit = off
