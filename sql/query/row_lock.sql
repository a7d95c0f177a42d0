-- Whether nobody holds this row: no row comes back when a relay is sending it.
-- Parameters: $1 its id.
-- Index: primary key. Locks: the row, for the moment of asking.
select id
from {table}
where id = $1
for no key update skip locked
