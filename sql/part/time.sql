-- A time as text in UTC, whatever the session's zone; `infinity` stays what it is.
coalesce(
    to_char({column}::timestamptz at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    {column}::text
)
