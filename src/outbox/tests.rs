//! The table as the simulation of the relay has it: a model of its rows, locks, transactions and sessions. What a claim
//! asks, and in which order, is the real one.

pub(crate) mod rows;
pub(crate) mod sessions;
mod statements;
