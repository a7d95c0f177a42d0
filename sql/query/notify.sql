-- Tells whoever listens on the table's channel.
-- Parameters: $1 the table's quoted name, $2 the message.
-- The commit takes the lock that all NOTIFYs of the server's databases share.
select pg_notify('outboxd_' || to_regclass($1)::oid, $2)
