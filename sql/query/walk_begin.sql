-- Makes a walk through the table follow an index, whatever the statistics say: on a table that was never analysed
-- the planner would sort all of it for each page.
-- No parameters. For the transaction, as a pooler drops settings of the session.
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off;
set local jit = off
