//! Who is there: the relays and how they are set, exchanges, queues, keys.

use std::time::Duration;

/// How a relay is set, as far as the bounds on what it may do follow from it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub interval: Duration,
    pub batch_rows: u64,
    pub workers: u64,
    pub window: u64,
    pub grace: Duration,
    pub publish_timeout: Duration,
    pub open_timeout: Duration,
    pub claim_max_idle: Duration,
    /// In seconds; 0 means that neither side watches the other.
    pub heartbeat: u64,
    pub listen: bool,
    /// It logs every tick and every retry.
    pub verbose: bool,
}

/// How many relays run all the time.
pub const RELAYS: usize = 3;

/// Different ones, as they may be side by side in a fleet.
pub fn settings(relay: usize) -> Settings {
    let base = Settings {
        interval: Duration::from_millis(700),
        batch_rows: 200,
        workers: 3,
        window: 128,
        grace: Duration::from_secs(8),
        publish_timeout: Duration::from_secs(3),
        open_timeout: Duration::from_secs(5),
        claim_max_idle: Duration::from_secs(12),
        heartbeat: 5,
        listen: false,
        verbose: false,
    };
    match relay {
        0 => Settings {
            listen: true,
            interval: Duration::from_secs(2),
            batch_rows: 100,
            workers: 2,
            window: 64,
            ..base
        },
        1 => Settings {
            interval: Duration::from_millis(150),
            batch_rows: 30,
            workers: 1,
            window: 16,
            claim_max_idle: Duration::from_secs(5),
            ..base
        },
        2 => Settings { heartbeat: 0, verbose: true, ..base },
        _ => Settings { batch_rows: 50, workers: 1, ..base },
    }
}

/// The number of `outboxd once`, which is a relay, too.
pub const ONCE: usize = RELAYS;

/// The number of an operator's commands.
pub const OPERATOR: usize = RELAYS + 1;

/// A relay's name in the database, and in what is told of it.
pub fn name(relay: usize) -> String {
    match relay {
        ONCE => "once".into(),
        OPERATOR => "operator".into(),
        relay => format!("relay-{relay}"),
    }
}

/// Each has one queue. What is sent to the first is kept whatever happens.
pub const KEPT: &str = "kept";
pub const BRITTLE: &str = "brittle";
pub const VOLATILE: &str = "volatile";

/// Reached by its name, through the default exchange.
pub const DIRECT: &str = "direct";

/// A queue that is full, and rejects what comes.
pub const FULL: &str = "full";

/// An exchange that is not there.
pub const MISSING: &str = "missing";

/// The queues that are consumed.
pub const QUEUES: [&str; 4] = [KEPT, DIRECT, BRITTLE, VOLATILE];

/// Few enough that writers meet on them.
pub const KEYS: u64 = 10;

/// These keys have events that cannot be sent among the others, which an operator has to skip.
pub const TROUBLED_KEYS: u64 = 3;

/// The largest payload that is sent, in bytes.
pub const PAYLOAD_MAX: u64 = 96 * 1024;

/// What a password looks like that must be in no log.
pub const DATABASE_PASSWORD: &str = "pg-hunter2-secret";
pub const BROKER_PASSWORD: &str = "mq-hunter2-secret";
pub const BROKER_USER: &str = "chaos";

/// What is in each payload and in each header, and must be in no log.
pub const MARK: &str = "MARK-of-a-payload";

/// The configuration file of all relays.
pub fn config() -> String {
    format!(
        r#"min_age = "0s"
payload_max = "{PAYLOAD_MAX}B"
max_failures = 6
backoff_base = "200ms"
backoff_max = "3s"

[[route]]
event_type = "kept.*"
exchange = "{KEPT}"

[[route]]
event_type = "nobody.*"
exchange = "{KEPT}"
unroutable = "accept"

[[route]]
event_type = "unroutable.*"
exchange = "{KEPT}"

[[route]]
event_type = "brittle.*"
exchange = "{BRITTLE}"

[[route]]
event_type = "volatile.*"
exchange = "{VOLATILE}"
"#
    )
}

/// The flags of a relay.
pub fn flags(settings: &Settings, once: bool) -> Vec<String> {
    let seconds = |time: Duration| format!("{}ms", time.as_millis());
    let mut flags = vec![
        ("--batch-rows", settings.batch_rows.to_string()),
        ("--workers", settings.workers.to_string()),
        ("--window", settings.window.to_string()),
        ("--grace", seconds(settings.grace)),
        ("--publish-timeout", seconds(settings.publish_timeout)),
        ("--open-timeout", seconds(settings.open_timeout)),
        ("--claim-max-idle", seconds(settings.claim_max_idle)),
    ];
    if !once {
        flags.push(("--interval", seconds(settings.interval)));
    }
    let mut words: Vec<String> =
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    words.extend(settings.listen.then(|| "--listen".to_owned()));
    words.extend(settings.verbose.then(|| "-v".to_owned()));
    words
}
