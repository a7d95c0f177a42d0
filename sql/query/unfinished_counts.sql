-- How many events wait, have failed, and are dead.
-- Parameters: none.
-- Index: the one of unfinished rows, and that of refused ones; finished rows, however many, are not looked at.
-- Locks: none.
select unfinished.waiting, unfinished.failed, dead.events
from (
    select
        count(*) filter (where status = 'WAITING') as waiting,
        count(*) filter (where status = 'FAILED') as failed
    from {table}
    where status in ('WAITING', 'FAILED')
) as unfinished
cross join (
    select count(*) as events
    from {table}
    where status = 'DEAD'
) as dead
