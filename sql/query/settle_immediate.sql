-- Has constraints speak up in the statement that breaks them, also those that would wait for the commit, which can only
-- be refused as a whole.
-- No parameters. For the transaction.
set constraints all immediate
