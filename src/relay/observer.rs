//! What a host may watch: each event's fate, each tick, and trouble as it comes and goes.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Server};
use crate::event::{Event, Tally};
use crate::outbox::{Look, Scope};
use crate::policy::Settlement;

use super::chain::Rest;
use super::link::Contact;
use super::source::Source;
use super::walk::Walk;

/// Something that a host may want to count or to log. It holds no payload, no URL and no password.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Happening<'a> {
    /// What becomes of an event. Said before it is written: should that fail, or the process die, it is said again, to
    /// whoever has the event next.
    Decided {
        /// The event, without its payload.
        event: &'a Event,
        /// What it becomes.
        settlement: &'a Settlement,
    },
    /// A claim was taken.
    Claimed {
        /// How many events it holds.
        events: u64,
        /// How long taking it took.
        took: Duration,
    },
    /// The broker has answered to a message, whatever it said.
    Answered {
        /// Since the message was handed to the broker's client.
        took: Duration,
    },
    /// Every event of a claim has its outcome; what is left to do is to write that.
    Completed {
        /// How many events it holds.
        events: u64,
        /// Since it was taken.
        took: Duration,
    },
    /// What became of a claim's events is committed.
    Settled {
        /// What was written.
        tally: &'a Tally,
        /// How long writing it took.
        took: Duration,
    },
    /// A tick has ended, or a part of a long one: that is after `interval` at the latest. Also while a server is in
    /// trouble, at each try.
    Ticked {
        /// What it did.
        tally: &'a Tally,
        /// How long it took.
        took: Duration,
        /// What keeps it from working, if anything does.
        trouble: Option<&'a Error>,
    },
    /// A server is in trouble that was not, or in another kind of it: it may come twice before the end.
    TroubleBegan(&'a Error),
    /// Both servers are usable again.
    TroubleEnded,
    /// A server's connection is not any more what it was. The broker's is looked at all the time, the database's by a
    /// tick.
    Contact {
        /// Which server.
        server: Server,
        /// What became of it.
        contact: Contact<'a>,
    },
    /// A nudge has ended the wait for the next beat.
    Woken,
    /// The relay goes on, working or waiting. Said at least every second, except while it waits for a server to answer,
    /// which each has its own limit.
    Alive,
}

/// Whoever watches. Called on the relay's own thread, so they must be quick.
#[derive(Default)]
pub(super) struct Observer(Vec<Box<Watch>>);

type Watch = dyn FnMut(Happening<'_>) + Send;

impl Observer {
    pub(super) fn add(&mut self, watch: impl FnMut(Happening<'_>) + Send + 'static) {
        self.0.push(Box::new(watch));
    }

    pub(super) fn tell(&mut self, happening: Happening<'_>) {
        for watch in &mut self.0 {
            watch(happening);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}

/// The walk, watched.
pub(super) struct Watched<'a> {
    pub(super) walk: &'a mut Walk,
    pub(super) observer: &'a mut Observer,
}

impl Source for Watched<'_> {
    fn begin(&mut self) {
        self.walk.begin();
    }

    fn next(&mut self, beat: Duration, rows: usize, in_flight: bool, busy: Vec<String>) -> Option<Scope> {
        self.walk.next(beat, rows, in_flight, busy)
    }

    fn saw(&mut self, scope: &Scope, look: &Look<()>, took: Duration) {
        self.walk.saw(scope, look, took);
    }

    fn missed(&mut self, scope: Scope) {
        self.walk.missed(scope);
    }

    fn told(&mut self, happening: Happening<'_>) {
        self.observer.tell(happening);
    }

    fn decided(&mut self, event: &Event, settlement: &Settlement) {
        self.observer.tell(Happening::Decided { event, settlement });
    }

    fn landed(&mut self, rests: Vec<Rest>, withheld: bool) {
        self.walk.landed(rests, withheld);
    }

    fn be_the_last(&mut self) {
        self.walk.be_the_last();
    }

    fn is_over(&self) -> bool {
        self.walk.is_over()
    }
}
