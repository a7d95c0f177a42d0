-- The first unfinished event of a key: what holds its others back, if anything does.
-- Parameters: $1 the key; $2 whether a DEAD event counts as unfinished.
-- Index: the partial one of keys. Locks: none.
select id::bigint
from {table}
where ordering_key is not null
    and (ordering_key collate "C") = $1
    and status in ('WAITING', 'FAILED', 'DEAD')
    and ($2 or status <> 'DEAD')
order by id
limit 1
