-- Makes the next events of a walk due again that an operator means, or only says which they are. Status, counter,
-- due time, deadline and reason change together. They become FAILED: min_age and max_age concern WAITING ones only.
-- Whoever is DEAD, FAILED, EXPIRED or PUBLISHED by $4 is meant; a row whose deadline has passed is left, it would only
-- expire again.
-- Parameters: those of the filter ($4 is never null) and of the page; $12 at most so many rows; $15 whether FAILED
-- rows that are due already are meant too; $16 whether nothing is to be changed; $17 events a second, or null for
-- all at once; $18 when the first event of this run is due, in seconds since 1970, or null for now; $19 how many
-- came before; $20 the new deadline in seconds after the due time, or null; $21 whether to drop the deadline;
-- $22 how last_error begins then, $23 the same for an event that was sent before, $24 how it begins where an attempt
-- ended without a confirm; $25 at most so many examples.
-- Index: the page's, then the primary key. Locks: the rows; one that a relay is sending is passed over: what the
-- relay decides about it stands. Due times grow with the id, so that no event of a key is due before its predecessor.
with page as materialized (
    {page}
),
matched as materialized (
    select
        outbox.*,
        coalesce(outbox.expired_at <= statement_timestamp(), false) and $20::float8 is null and not $21 as overdue
    from page as outbox
    where {filter}
        and {retryable}
    order by outbox.id
    limit $12
),
free as materialized (
    select outbox.id
    from {table} as outbox
    where outbox.id = any(array(select id from matched where not overdue))
        and outbox.status::text = any($4)
        and {retryable}
        and not $16
    order by outbox.id
    for no key update skip locked
),
spread as materialized (
    select
        id,
        case when $17::float8 is not null then
            coalesce(to_timestamp($18::float8), statement_timestamp())
                + make_interval(secs => ($19::bigint + row_number() over (order by id) - 1) / $17)
        end as due_at
    from free
),
changed as (
    update {table} as outbox
    set status = 'FAILED',
        fail_count = 0,
        available_at = coalesce(spread.due_at, clock_timestamp()),
        published_at = null,
        last_retried_at = null,
        expired_at = case
            when $21 then null
            when $20 is not null then coalesce(spread.due_at, clock_timestamp()) + make_interval(secs => $20)
            else outbox.expired_at
        end,
        last_error = left(
            case
                when outbox.status::text = 'PUBLISHED'
                    or starts_with(outbox.last_error, $23)
                    or starts_with(outbox.last_error, $24) then $23
                else $22
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
    select * from matched where not overdue order by id limit $25
) as outbox on true
order by outbox.id
