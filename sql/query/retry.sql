-- Makes the next events of a walk due again that an operator means, or only says which they are. Status, counter,
-- due time, deadline and reason change together. Whoever is DEAD, FAILED, EXPIRED or PUBLISHED by $4 is meant; a row
-- whose deadline has passed is left, it would only expire again.
-- Parameters: those of the filter ($4 is never null) and of the page; $11 at most so many rows; $14 whether FAILED
-- rows that are due already are meant too; $15 whether nothing is to be changed; $16 events a second, or null for
-- all at once; $17 when the first event of this run is due, in seconds since 1970, or null for now; $18 how many
-- came before; $19 the new deadline in seconds after the due time, or null; $20 whether to drop the deadline;
-- $21 how last_error begins then, $22 the same for an event that was sent before, $23 how it begins where an attempt
-- ended without a confirm; $24 at most so many examples.
-- Index: the page's, then the primary key. Locks: the rows; one that a relay is sending is passed over: what the
-- relay decides about it stands. Due times grow with the id, so that no event of a key is due before its predecessor.
with page as materialized (
    {page}
),
matched as materialized (
    select
        outbox.*,
        coalesce(outbox.expired_at <= statement_timestamp(), false) and $19::float8 is null and not $20 as overdue
    from page as outbox
    where {filter}
        and {retryable}
    order by outbox.id
    limit $11
),
free as materialized (
    select outbox.id
    from {table} as outbox
    where outbox.id = any(array(select id from matched where not overdue))
        and outbox.status::text = any($4)
        and {retryable}
        and not $15
    order by outbox.id
    for no key update skip locked
),
spread as materialized (
    select
        id,
        case when $16::float8 is not null then
            coalesce(to_timestamp($17::float8), statement_timestamp())
                + make_interval(secs => ($18::bigint + row_number() over (order by id) - 1) / $16)
        end as due_at
    from free
),
changed as (
    update {table} as outbox
    set status = '{retried_status}',
        fail_count = 0,
        available_at = spread.due_at,
        published_at = null,
        last_retried_at = null,
        expired_at = case
            when $20 then null
            when $19 is not null then coalesce(spread.due_at, clock_timestamp()) + make_interval(secs => $19)
            else outbox.expired_at
        end,
        last_error = left(
            case
                when outbox.status::text = 'PUBLISHED'
                    or starts_with(outbox.last_error, $22)
                    or starts_with(outbox.last_error, $23) then $22
                else $21
            end
                || '; was ' || outbox.status::text
                || coalesce(' at ' || {time outbox.published_at}, '')
                || coalesce(': ' || outbox.last_error, ''),
            1000
        )
    from spread
    where outbox.id = spread.id
    returning outbox.id
)
select
    bounds.last, bounds.length, bounds.matched, bounds.last_matched, bounds.overdue, bounds.changed,
    extract(epoch from statement_timestamp())::float8,
    {listed}
from (
    select
        (select max(id) from page) as last,
        (select count(*) from page) as length,
        (select count(*) from matched) as matched,
        (select max(id) from matched) as last_matched,
        (select count(*) from matched where overdue) as overdue,
        (select count(*) from changed) as changed
) as bounds
left join lateral (
    select * from matched where not overdue order by id limit $24
) as outbox on true
order by outbox.id
