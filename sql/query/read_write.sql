-- Lets the transaction write although its role's default is to read only. Comes before its first statement.
-- No parameters.
set transaction read write
