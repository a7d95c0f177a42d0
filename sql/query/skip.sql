-- Gives the next events of a walk up that an operator means, or only says which they are. The time of it goes into
-- available_at: SKIPPED has no column of its own, and retention counts from there.
-- Parameters: those of the filter ($4 is never null, and names unfinished statuses only) and of the page; $12 at most
-- so many rows; $15 the reason, or null to keep the last error behind a word of it; $16 whether nothing is to be changed; $17 at most so
-- many examples.
-- Index: the page's, then the primary key. Locks: the rows; one that a relay is sending is passed over: what the
-- relay decides about it stands.
with page as materialized (
    {page}
),
matched as materialized (
    select *
    from page as outbox
    where {filter}
    order by outbox.id
    limit $12
),
free as materialized (
    select outbox.id
    from {table} as outbox
    where outbox.id = any(array(select id from matched))
        and outbox.status::text = any($4)
        and not $16
    order by outbox.id
    for no key update skip locked
),
changed as (
    update {table} as outbox
    set status = 'SKIPPED',
        available_at = clock_timestamp(),
        last_error = left(coalesce($15, 'skipped by hand' || coalesce('; was: ' || outbox.last_error, '')), 1000)
    from free
    where outbox.id = free.id
    returning outbox.id
)
select
    bounds.last, bounds.length, bounds.matched, bounds.last_matched, 0::bigint, bounds.changed,
    extract(epoch from statement_timestamp())::float8,
    {listed}
from (
    select
        (select max(id) from page) as last,
        (select count(*) from page) as length,
        (select count(*) from matched) as matched,
        (select max(id) from matched) as last_matched,
        (select count(*) from changed) as changed
) as bounds
left join lateral (
    select * from matched order by id limit $17
) as outbox on true
order by outbox.id
