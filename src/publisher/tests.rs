//! The broker as the simulations have it: what it makes of messages, connections on it with the real desk and the real
//! ledgers, and a session for the relay.

pub(crate) mod broker;
pub(crate) mod connection;
pub(crate) mod session;
