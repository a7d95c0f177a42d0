-- How the server would do a statement, without doing it.
-- The parameters are the statement's own. Locks: the weakest one on the table.
explain (costs off)
{statement}
