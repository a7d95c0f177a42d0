-- One page of a walk up or down the table: its last row, its length, and the rows in it that the operator means. One row at least.
-- Parameters: those of the filter and of the page; $12 at most so many rows.
-- Index: the page's. Locks: none.
with page as materialized (
    {page}
)
select bounds.last, bounds.length, {listed}
from (select {last}(id) as last, count(*) as length from page) as bounds
left join lateral (
    select *
    from page as outbox
    where {filter}
    order by outbox.id {direction}
    limit $12
) as outbox on true
order by outbox.id {direction}
