-- How long one try of init waits for a lock: writers that queue behind it wait no longer than this.
-- No parameters. For the session, which init ends when it is done.
set lock_timeout = '1s'
