//! What the answers of the database's server mean. Asks them in order, and decides.

use std::time::Duration;

use crate::config::Database;
use crate::outbox::{self, Inspector, SNAPSHOT_AGE, SNAPSHOT_TRANSACTIONS, ServerFacts};

use super::Finding;

/// The versions that everything here is tested on.
const TESTED: &str = "15, 17 and 18";

/// Some of our functions and triggers need at least this one.
const OLDEST: i32 = 14;

/// By how much two clocks may differ before anyone is misled.
const CLOCK_MAX_S: f64 = 5.0;

/// The findings, and the role that we are, if the database can be reached.
pub(super) fn look(database: &Database, inspector: &mut Inspector) -> (Vec<Finding>, Option<String>) {
    let server = match inspector.server() {
        Ok(server) => server,
        Err(error) => return (vec![Finding::of("database", &error)], None),
    };
    let address = outbox::describe(database);
    let mut findings = vec![reached(&address, &server), version(&server)];
    findings.push(match inspector.try_writing() {
        Ok(()) => Finding::ok("writable", "takes writes"),
        Err(error) => Finding::of("writable", &error),
    });
    findings.push(clock(&server));
    findings.push(match inspector.zone() {
        Ok(zone) if database.time_zone.is_some() => {
            Finding::ok("time_zone", format!("times without a zone are read as those of {zone} (time_zone)"))
        }
        Ok(zone) => Finding::ok("time_zone", format!("the session's zone is {zone}")),
        Err(error) => Finding::of("time_zone", &error),
    });
    findings.push(match inspector.is_direct() {
        Ok(true) => Finding::ok("pooler", "none: sessions are the server's own"),
        Ok(false) => Finding::ok(
            "pooler",
            "one is in between; outboxd init needs an address that leads to the server directly",
        ),
        Err(error) => Finding::of("pooler", &error),
    });
    match inspector.old_snapshots(SNAPSHOT_AGE, SNAPSHOT_TRANSACTIONS) {
        Ok(old) if old.is_empty() => findings.push(Finding::ok("snapshots", "none keeps vacuum waiting")),
        Ok(old) => {
            findings.extend(old.iter().map(|it| Finding::warning("snapshots", it.to_string(), it.remedy())));
        }
        Err(error) => findings.push(Finding::of("snapshots", &error)),
    }
    (findings, Some(server.role))
}

fn reached(address: &str, server: &ServerFacts) -> Finding {
    let ServerFacts { role, round_trip, .. } = server;
    let standby = if server.is_standby { ", a standby" } else { "" };
    Finding::ok(
        "database",
        format!("{address} answers as {role}{standby}, round trip {}", short(*round_trip)),
    )
}

fn version(server: &ServerFacts) -> Finding {
    let ServerFacts { version, major, .. } = server;
    let text = format!("PostgreSQL {version}");
    match *major {
        OLDEST.. => Finding::ok("database_version", format!("{text}; outboxd is tested on {TESTED}")),
        _ => Finding::warning(
            "database_version",
            format!("{text} is older than {OLDEST}, which outboxd init needs"),
            format!("upgrade the server; outboxd is tested on PostgreSQL {TESTED}"),
        ),
    }
}

fn clock(server: &ServerFacts) -> Finding {
    let ahead = server.clock_ahead_s;
    let side = if ahead < 0.0 { "behind" } else { "ahead of" };
    let text = format!("the database's clock is {:.1} s {side} this machine's", ahead.abs());
    if ahead.abs() <= CLOCK_MAX_S + server.round_trip.as_secs_f64() {
        return Finding::ok("clock", text);
    }
    Finding::warning(
        "clock",
        format!("{text}; events are due, expire and are dated by the database's, logs by this machine's"),
        "set the clock of the one that is wrong, and keep it with NTP",
    )
}

/// A short time with as many digits as anyone reads.
pub(super) fn short(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn server(major: i32, clock_ahead_s: f64, round_trip_ms: u64) -> ServerFacts {
        ServerFacts {
            version: format!("{major}.1"),
            major,
            role: "app".into(),
            is_standby: false,
            round_trip: Duration::from_millis(round_trip_ms),
            clock_ahead_s,
        }
    }

    #[test]
    fn old_versions_are_warned_of() {
        for (major, expected) in [(13, State::Warning), (14, State::Ok), (15, State::Ok), (18, State::Ok)] {
            assert_eq!(version(&server(major, 0.0, 1)).state, expected, "{major}");
        }
    }

    #[test]
    fn a_clock_is_wrong_only_beyond_what_the_way_there_explains() {
        for (ahead, round_trip_ms, expected, words) in [
            (0.2, 1, State::Ok, "0.2 s ahead of"),
            (-4.9, 1, State::Ok, "4.9 s behind"),
            (-5.2, 1, State::Warning, "5.2 s behind"),
            (3600.0, 1, State::Warning, "3600.0 s ahead of"),
            (6.0, 2_000, State::Ok, "6.0 s ahead of"),
        ] {
            let found = clock(&server(15, ahead, round_trip_ms));
            assert_eq!(found.state, expected, "{ahead}");
            assert!(found.text.contains(words), "{}", found.text);
        }
    }
}
