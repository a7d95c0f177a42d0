-- Forgets some of what was received long ago.
-- Parameters: $1 age in seconds, $2 most rows.
-- Looks through the table. Locks: the rows that it deletes; passes over those that are locked.
delete from event_inbox
where ctid = any(
    array(
        select ctid
        from event_inbox
        where received_at < clock_timestamp() - make_interval(secs => $1)
        limit $2
        for update skip locked
    )
)
