//! What a drain asks where to look next, and tells what it found. Decides nothing.

use std::time::Duration;

use crate::event::Event;
use crate::outbox::{Look, Scope};
use crate::policy::Settlement;

use super::chain::Rest;
use super::observer::Happening;

pub(super) trait Source {
    /// Begins another drain.
    fn begin(&mut self);

    /// Where to look next, for at most `rows_max` events; none while there is nothing to look for. `busy` are the keys
    /// that are on their way, if anything is `in_flight`.
    fn next(&mut self, beat: Duration, rows_max: usize, in_flight: bool, busy: Vec<String>) -> Option<Scope>;

    /// Takes in what a look brought, and how long it took.
    fn saw(&mut self, scope: &Scope, look: &Look<()>, took: Duration);

    /// Takes back where it wanted to look: there was no session for it.
    fn missed(&mut self, scope: Scope);

    /// Takes in what a host may want to know.
    fn told(&mut self, _happening: Happening<'_>) {}

    /// Takes in what becomes of an event, before it is written.
    fn decided(&mut self, _event: &Event, _settlement: &Settlement) {}

    /// Takes in that a claim was settled: what is left of its chains, and whether it had locked events that it might not
    /// send.
    fn landed(&mut self, rests: Vec<Rest>, withheld: bool);

    /// Looks for nothing a second time: what could not be settled may be due still, and would be claimed again and
    /// again.
    fn be_the_last(&mut self);

    /// Whether there is nothing more to look for. Only right while nothing is in flight.
    fn is_over(&self) -> bool;
}
