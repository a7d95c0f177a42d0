-- Has the session told of nothing any more.
-- No parameters; no locks.
unlisten *
