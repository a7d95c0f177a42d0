//! The relay against modelled servers.

mod simulation;
