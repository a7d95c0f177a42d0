//! `outboxd status`: what the table holds, and whether both servers are there.

use std::time::Duration;

use outboxd::config::Config;
use outboxd::error::{Error, Result};
use outboxd::outbox::{self, Backlog, Outbox, ServerInfo, StatusCount};
use outboxd::publisher::{self, Alarms, BrokerInfo, Session};
use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::print;
use super::trouble::{self, Trouble};

/// The statuses in the order of an event's life; others that the table holds follow.
const STATUSES: [&str; 6] = ["WAITING", "FAILED", "DEAD", "PUBLISHED", "EXPIRED", "SKIPPED"];

/// The longest wait for the broker's goodbye.
const CLOSE_MAX: Duration = Duration::from_secs(2);

struct Status {
    table: String,
    database: (String, Result<Database>),
    broker: (String, Result<Broker>),
}

struct Broker {
    info: BrokerInfo,
    /// An error when it blocks publishers.
    alarms: Result<Alarms>,
}

struct Database {
    server: ServerInfo,
    /// An error when the table is too large to be counted in time.
    counts: Result<Vec<StatusCount>>,
    backlog: Backlog,
    trouble: Trouble,
}

/// Prints the status; the exit code is that of the first server in trouble.
pub(crate) fn status(config: Config, as_json: bool) -> Exit {
    let min_age = humantime::format_duration(config.claim.min_age).to_string();
    let status = look(config);
    if as_json {
        print::line(status.json());
    } else {
        status.print(&min_age);
    }
    let broker = status.broker.1.as_ref();
    let broken =
        [status.database.1.as_ref().err(), broker.err(), broker.ok().and_then(|it| it.alarms.as_ref().err())];
    broken.into_iter().flatten().next().map_or(Exit::Done, |error| error.kind().into())
}

fn look(config: Config) -> Status {
    let table = config.database.table.to_string();
    let database = outbox::describe(&config.database);
    let broker = publisher::describe_url(config.broker.url.expose());
    let mut outbox = Outbox::new(config.database, config.claim);
    let look = |outbox: &mut Outbox| {
        let (server, counts, backlog) = (outbox.server()?, outbox.counts(), outbox.backlog()?);
        Ok(Database { server, counts, backlog, trouble: trouble::look(outbox) })
    };
    let seen = Session::open(&config.broker).map(|mut session| {
        let seen = Broker { info: session.broker(), alarms: session.probe() };
        session.close(CLOSE_MAX);
        seen
    });
    Status { table, database: (database, look(&mut outbox)), broker: (broker, seen) }
}

impl Status {
    fn print(&self, min_age: &str) {
        let (database, seen) = &self.database;
        match seen {
            Ok(seen) => {
                let mode = if seen.server.read_only { ", takes no writes" } else { "" };
                print::line(format_args!("table     {}", self.table));
                print::line(format_args!(
                    "database  {database} ok, PostgreSQL {}{mode}",
                    seen.server.version
                ));
                self.print_broker();
                print::line("");
                match &seen.counts {
                    Ok(counts) => {
                        for (status, count) in ordered(counts) {
                            let see = match status.as_str() {
                                "DEAD" if count > 0 => "  see: outboxd list --status dead",
                                _ => "",
                            };
                            print::line(format_args!("{status:<9} {count:>10}{see}"));
                        }
                    }
                    Err(error) => print::line(format_args!("not counted: {error}")),
                }
                print::line("");
                print_backlog(&seen.backlog, min_age);
                seen.trouble.print();
            }
            Err(error) => {
                print::line(format_args!("table     {}", self.table));
                print::line(format_args!("database  UNUSABLE: {error}"));
                self.print_broker();
            }
        }
    }

    fn print_broker(&self) {
        let (broker, seen) = &self.broker;
        match seen {
            Ok(Broker { info, alarms }) => {
                let state = match alarms {
                    Ok(Alarms::None) => "reachable, takes messages".into(),
                    Ok(Alarms::NotKnown) => "reachable, alarms not known".into(),
                    Err(error) => error.to_string(),
                };
                print::line(format_args!("broker    {broker} {state}, {} {}", info.product, info.version));
            }
            Err(error) => print::line(format_args!("broker    UNUSABLE: {error}")),
        }
    }

    fn json(&self) -> Value {
        let failed = |error: &Error| json!({ "state": "unusable", "error": error.to_string() });
        let database = match &self.database.1 {
            Ok(it) => json!({
                "state": if it.server.read_only { "read_only" } else { "ok" },
                "version": it.server.version,
            }),
            Err(error) => failed(error),
        };
        let broker = match &self.broker.1 {
            Ok(Broker { info, alarms }) => {
                let (state, alarms) = match alarms {
                    Ok(Alarms::None) => ("reachable", "none".into()),
                    Ok(Alarms::NotKnown) => ("reachable", "not known".into()),
                    Err(error) => ("blocked", error.to_string()),
                };
                json!({ "state": state, "alarms": alarms, "product": info.product, "version": info.version })
            }
            Err(error) => failed(error),
        };
        let seen = self.database.1.as_ref().ok();
        let counts = seen.and_then(|it| it.counts.as_ref().ok()).map(|counts| {
            ordered(counts).into_iter().map(|(status, count)| (status, json!(count))).collect::<Map<_, _>>()
        });
        let backlog = seen.map(|it| &it.backlog);
        let mut document = json!({
            "table": self.table,
            "database": database,
            "broker": broker,
            "counts": counts,
            "due": backlog.map(|it| it.due),
            "younger_than_min_age": backlog.map(|it| it.young),
            "backing_off": backlog.map(|it| it.backing_off),
            "scheduled": backlog.map(|it| it.scheduled),
            "held_back": backlog.map(|it| it.held_back),
            "oldest_due_age_seconds": backlog.and_then(|it| it.oldest_due).map(|age| age.as_secs_f64()),
        });
        if let (Some(document), Some(seen)) = (document.as_object_mut(), seen) {
            document.extend(seen.trouble.json().map(|(name, value)| (name.to_string(), value)));
        }
        document
    }
}

fn print_backlog(backlog: &Backlog, min_age: &str) {
    let oldest = match backlog.oldest_due {
        Some(age) => {
            format!(", the oldest for {}", humantime::format_duration(Duration::from_secs(age.as_secs())))
        }
        None => String::new(),
    };
    print::line(format_args!("due now   {:>10}{oldest}", backlog.due));
    print::line(format_args!("too young {:>10} (min_age {min_age})", backlog.young));
    print::line(format_args!("back-off  {:>10}", backlog.backing_off));
    print::line(format_args!("scheduled {:>10}", backlog.scheduled));
    print::line(format_args!("held back {:>10}", backlog.held_back));
}

/// Every known status, those without events included, then what else the table holds.
fn ordered(counts: &[StatusCount]) -> Vec<(String, u64)> {
    let count = |status: &str| counts.iter().find(|it| it.status == status).map_or(0, |it| it.count);
    let others = counts.iter().filter(|it| !STATUSES.contains(&it.status.as_str()));
    STATUSES
        .iter()
        .map(|status| ((*status).to_string(), count(status)))
        .chain(others.map(|it| (it.status.clone(), it.count)))
        .collect()
}
