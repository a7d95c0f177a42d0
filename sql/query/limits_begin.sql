-- Opens a transaction for anything but a claim, within limits: what someone else's lock holds up gives up and
-- is tried again, instead of keeping the relay from settling what it holds itself.
-- SET LOCAL, because a transaction pooler drops or refuses settings of the session.
-- The zone is that of columns whose times have none; times with a zone do not depend on it.
begin isolation level read committed;
set local statement_timeout = '15s';
set local lock_timeout = '2s';
set local idle_in_transaction_session_timeout = '15s';
set local tcp_user_timeout = '10s';
set local time zone {time_zone}
