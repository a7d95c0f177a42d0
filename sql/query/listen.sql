-- Has the session told of what commits from now on.
-- {channel} is the quoted name of the channel. For the session; no locks that anyone waits for.
listen {channel}
