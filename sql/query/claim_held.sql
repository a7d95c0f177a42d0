-- The keys of which a walk can get nothing for a while. Leaving them out, it does not pay for what waits behind their
-- first event.
-- Parameters, indexes and locks: those of the part.
{held_keys}
