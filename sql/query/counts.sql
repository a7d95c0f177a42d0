-- How many events have which status. Scans the table.
select status::text, count(*)
from {table}
group by status
