-- Deletes the next finished rows of a walk, or only says which they are.
-- Parameters: those of the filter ($4 is never null, and names finished statuses or DEAD) and of the page; $12 at
-- most so many rows; $15 how long ago they were finished at least, in seconds; $16 whether nothing is to be deleted;
-- $17 at most so many examples.
-- Index: primary key. Locks: the rows that go; one that is locked is passed over.
--
-- There is no index for this on purpose: each event would pay for it. The walk goes up from the lowest id, and who
-- walks may stop at a page whose rows were all created less than $15 ago: those were not finished before that, and
-- neither were later ones. On 1,000,000 rows of 500 bytes that were never analysed, two slow cores: 10,000 of them go
-- in 0.13 s (10 to 16 ms per 1,000); nothing to go is known after one page, 8 to 15 ms; a walk over all of them that
-- finds nothing takes about 2 s.
with page as materialized (
    {page}
),
matched as materialized (
    select *
    from page as outbox
    where {filter}
        and {finished_before}
    order by outbox.id
    limit $12
),
free as materialized (
    select outbox.id
    from {table} as outbox
    where outbox.id = any(array(select id from matched))
        and outbox.status::text = any($4)
        and {finished_before}
        and not $16
    order by outbox.id
    for update skip locked
),
changed as (
    delete from {table} as outbox
    where outbox.id = any(array(select id from free))
    returning outbox.id
)
select
    bounds.last, bounds.length, bounds.matched, bounds.last_matched, 0::bigint, bounds.changed,
    extract(epoch from statement_timestamp())::float8,
    {listed},
    bounds.young
from (
    select
        (select max(id) from page) as last,
        (select count(*) from page) as length,
        (select bool_and(created_at > statement_timestamp() - make_interval(secs => $15)) from page) as young,
        (select count(*) from matched) as matched,
        (select max(id) from matched) as last_matched,
        (select count(*) from changed) as changed
) as bounds
left join lateral (
    select * from matched order by id limit $17
) as outbox on true
order by outbox.id
