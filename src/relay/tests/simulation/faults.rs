//! What goes wrong, and when.

use crate::simulated::Chance;

use super::world::{SECOND, World};

/// What may go wrong in a history, by its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Calm,
    /// Servers, relays and what is between them.
    Servers,
    /// Only the database, and one relay: its confirms outlive whatever that does, so nothing is sent twice.
    Database,
    /// Only the broker's alarms, and one relay: confirms that they hold back are waited for and written.
    Alarms,
    /// Only events.
    Events,
    All,
}

impl Kind {
    pub(super) fn of(seed: u64) -> Self {
        match seed % 8 {
            0 => Self::Calm,
            1 => Self::Database,
            2 => Self::Alarms,
            3 => Self::Servers,
            4 => Self::Events,
            _ => Self::All,
        }
    }

    pub(super) fn has_guilty(self) -> bool {
        matches!(self, Self::Events | Self::All)
    }

    pub(super) fn has_one_relay(self) -> bool {
        matches!(self, Self::Database | Self::Alarms)
    }

    /// Whether nothing may be sent twice.
    pub(super) fn makes_no_copies(self) -> bool {
        matches!(self, Self::Calm) || self.has_one_relay()
    }
}

/// Which fault it is.
const ALARM: u64 = 9;

pub(super) struct Faults {
    pub(super) kind: Kind,
    pub(super) next_at: u64,
    pub(super) until: u64,
    /// Once in so many of its steps a relay dies.
    kills_one_in: u64,
    pub(super) struck: u64,
}

impl Faults {
    pub(super) fn new(kind: Kind) -> Self {
        let next_at = if kind == Kind::Calm { u64::MAX } else { 0 };
        Self {
            kind,
            next_at,
            until: if matches!(kind, Kind::Alarms | Kind::Events) { 15 } else { 6 } * SECOND,
            kills_one_in: 0,
            struck: 0,
        }
    }

    pub(super) fn kills_now(&mut self, chance: &mut Chance) -> bool {
        let kills = chance.one_in(self.kills_one_in);
        // Once, so that the next one is another chance's doing.
        if kills {
            self.kills_one_in = 0;
        }
        kills
    }
}

/// Something goes wrong, or is well again.
pub(super) fn strike(world: &mut World) {
    world.faults.struck += 1;
    // An alarm must outlast publish_timeout now and then.
    let longest = if world.faults.kind == Kind::Alarms { 6 } else { 1 };
    world.faults.next_at = world.now + world.chance.between(1, longest * SECOND);
    if world.faults.kind == Kind::Events {
        // Long enough for an event to be refused as often as it may.
        return if world.chance.one_in(6) { mend(world) } else { world.meddle() };
    }
    let number = usize::try_from(world.chance.below(u64::try_from(world.relays.len()).unwrap())).unwrap();
    let what = match world.faults.kind {
        Kind::Database => world.chance.below(4),
        Kind::Alarms => ALARM,
        _ => world.chance.below(14),
    };
    match what {
        0 => world.servers.rows.borrow_mut().loses_one_in = 20,
        1 => world.servers.rows.borrow_mut().loses_one_in = 0,
        2 => {
            // Its restart ends every session.
            world.copies_max += world.at_stake();
            let is_up = world.chance.one_in(2);
            let mut rows = world.servers.rows.borrow_mut();
            rows.is_up = is_up;
            rows.end_all();
        }
        3 => world.servers.rows.borrow_mut().is_up = true,
        4 => world.kill(number),
        5 => world.faults.kills_one_in = world.chance.between(1, 60),
        6 => lose_connections(world, true),
        7 => lose_connections(world, false),
        8 => world.servers.hub.borrow_mut().broker.is_up = true,
        ALARM | 10 => {
            world.copies_max += world.at_stake();
            let mut hub = world.servers.hub.borrow_mut();
            hub.broker.has_alarm = !hub.broker.has_alarm;
        }
        11 => {
            world.copies_max += world.at_stake();
            let mut hub = world.servers.hub.borrow_mut();
            let is_slow = hub.broker.is_slow();
            hub.broker.set_slow(!is_slow);
        }
        12 => {
            // As a process that is stopped, or a host that is: longer than its claims live, now and then.
            let long = world.chance.between(1, 15) * SECOND;
            let now = world.now;
            world.copies_max += world.at_stake();
            world.relays[number].frozen_until = now + long;
        }
        _ => {
            if world.chance.one_in(2) {
                world.relays[number].stop.request();
            } else {
                mend(world);
                world.meddle();
            }
        }
    }
}

/// The operator mends the topology, or breaks it.
fn mend(world: &mut World) {
    if world.faults.kind.has_guilty() {
        let mut hub = world.servers.hub.borrow_mut();
        hub.broker.is_well = !hub.broker.is_well;
    }
}

/// The broker ends one connection, or all of them and is gone for a while.
fn lose_connections(world: &mut World, all: bool) {
    world.copies_max += world.at_stake();
    let mut hub = world.servers.hub.borrow_mut();
    let hub = &mut *hub;
    hub.broker.is_up = !all || hub.broker.chance.one_in(2);
    let most = if all { usize::MAX } else { 1 };
    for connection in hub.connections.values_mut().take(most) {
        connection.lose(&mut hub.broker, "CONNECTION_FORCED (320)");
    }
}
