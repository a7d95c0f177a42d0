-- What keeps vacuum from removing the dead rows of this database: sessions, prepared transactions and replication
-- slots with an old snapshot. No query texts, they may hold data.
-- Parameters: $1 the least age in seconds; $2 the least age in transactions, for those whose time is not visible.
-- Reads the server's own views. Without the rights of pg_read_all_stats other users' sessions show no times.
with held as (
    select
        'session' as kind,
        pid::text as name,
        application_name as application,
        extract(epoch from clock_timestamp() - xact_start)::float8 as seconds,
        age(backend_xmin)::bigint as transactions,
        state
    from pg_stat_activity
    where backend_xmin is not null
        and pid <> pg_backend_pid()
        and (datid = (select oid from pg_database where datname = current_database()) or datid is null)
        -- Vacuum's own snapshot does not hold vacuum back.
        and backend_type is distinct from 'autovacuum worker'
    union all
    select
        'prepared transaction',
        left(gid, 200),
        null,
        extract(epoch from clock_timestamp() - prepared)::float8,
        age(transaction)::bigint,
        null
    from pg_prepared_xacts
    where database = current_database()
    union all
    select 'replication slot', slot_name::text, null, null, age(xmin)::bigint, null
    from pg_replication_slots
    where xmin is not null
)
select kind, name, nullif(application, ''), seconds, transactions, state
from held
where seconds >= $1 or (seconds is null and transactions >= $2)
order by seconds desc nulls last, transactions desc
limit 20
