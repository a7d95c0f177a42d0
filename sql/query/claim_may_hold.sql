-- Whether any key may be held back: goes to the server with `claim_begin`, for a claim that begins a walk.
-- No parameters. Index: the one of unfinished events that may hold their key back, of which it reads one entry. Locks: none.
--
-- Most tables have none, and `claim_held` costs more to plan than the rest of a small claim takes.
select exists (
    select
    from {table}
    where ordering_key is not null
        and status in ({holding})
        and (status = 'DEAD' or available_at is not null)
)
