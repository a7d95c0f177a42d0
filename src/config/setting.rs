//! The one table of settings. Flags, environment names, keys of the file, `--help`, defaults and the README's
//! table all come from it. It holds no code that reads a value: that is `value.rs`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::given::Origin;
use crate::route::CONTENT_TYPE;

/// One setting, as its user knows it.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its key in the configuration file; the flag and the environment variable derive from it.
    pub name: &'static str,
    /// Its value when none is given; without one it must be given by whoever needs it.
    pub default: Option<&'static str>,
    /// What a value looks like, as the end of "expected ...".
    pub form: &'static str,
    /// What it is for, for `--help` and the README.
    pub meaning: &'static str,
    /// What stands for its value in `--help`.
    pub placeholder: &'static str,
    /// Whether its value may hold a password and must never be printed.
    pub secret: bool,
    /// What it belongs to.
    pub group: Group,
}

/// What a setting belongs to; the groups are the headings of `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Where the two servers are.
    Servers,
    /// When the relay works, and when it ends.
    Pace,
    /// What one claim takes.
    Claim,
    /// How messages leave.
    Publish,
    /// What a refusal leads to.
    Failures,
    /// What is told of it; of every command.
    Log,
    /// How others see that all is well.
    Watching,
}

impl Group {
    /// The heading in `--help`.
    pub fn title(self) -> &'static str {
        match self {
            Self::Servers => "Servers",
            Self::Pace => "Pace",
            Self::Claim => "Claim",
            Self::Publish => "Publish",
            Self::Failures => "Failures",
            Self::Log => "Log",
            Self::Watching => "Watching",
        }
    }
}

impl Setting {
    /// The setting of this name, as the file spells it.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// The flag: `--batch-rows`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// Whether its flag alone means `on`.
    pub fn is_switch(&self) -> bool {
        self.form == SWITCH
    }

    /// The name under which it is given there.
    pub(super) fn spelled(&self, origin: &Origin) -> String {
        match origin {
            Origin::Flag => self.flag(),
            Origin::Environment => self.variable(),
            Origin::VariableFile => self.file_variable(),
            Origin::Code | Origin::File { .. } | Origin::Credential => self.name.into(),
        }
    }

    /// The variable that names a file with the value of a secret setting: `DATABASE_URL_FILE`.
    pub fn file_variable(&self) -> String {
        format!("{}_FILE", self.variable())
    }

    /// The environment variable: `OUTBOXD_BATCH_ROWS`. The two URLs have the names that every tool knows.
    pub fn variable(&self) -> String {
        match self.name {
            "database_url" | "amqp_url" => self.name.to_uppercase(),
            name => format!("OUTBOXD_{}", name.to_uppercase()),
        }
    }
}

/// The form of a switch.
const SWITCH: &str = "on or off";

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

// The limits, both included. The table repeats them in words; a test holds the two together.
pub(super) const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(DAY);
pub(super) const MIN_AGE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * DAY);
pub(super) const MAX_AGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3650 * DAY);
pub(super) const RETENTION: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3650 * DAY);
pub(super) const GRACE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10 * MINUTE);
pub(super) const OPEN_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(5 * MINUTE);
pub(super) const CLAIM_MAX_IDLE: RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(HOUR);
pub(super) const PUBLISH_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(10 * MINUTE);
pub(super) const BACKOFF: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(DAY);
pub(super) const BATCH_ROWS: RangeInclusive<usize> = 1..=10_000;
pub(super) const BATCH_BYTES: RangeInclusive<usize> = KIB..=256 * MIB;
pub(super) const WORKERS: RangeInclusive<usize> = 1..=32;
pub(super) const WINDOW: RangeInclusive<usize> = 1..=10_000;
pub(super) const WINDOW_BYTES: RangeInclusive<usize> = KIB..=64 * MIB;
pub(super) const PAYLOAD_MAX: RangeInclusive<usize> = KIB..=512 * MIB;
pub(super) const MAX_FAILURES: RangeInclusive<u32> = 1..=1000;

/// Every setting, in the order in which `--help` and the README show them.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "database_url",
        default: None,
        form: "a PostgreSQL URL or key=value text, such as postgres://user@host:5432/database",
        meaning: "PostgreSQL, where the outbox is",
        placeholder: "URL",
        secret: true,
        group: Group::Servers,
    },
    Setting {
        name: "amqp_url",
        default: None,
        form: "an AMQP URL, such as amqp://user@host:5672/vhost, or amqps:// for TLS",
        meaning: "RabbitMQ, where the messages go",
        placeholder: "URL",
        secret: true,
        group: Group::Servers,
    },
    Setting {
        name: "table",
        default: Some("event_outbox"),
        form: "[schema.]table, each 1 to 63 bytes, in double quotes where it holds a dot or a quote",
        meaning: "the outbox, as [schema.]table",
        placeholder: "TABLE",
        secret: false,
        group: Group::Servers,
    },
    Setting {
        name: "time_zone",
        default: Some("none"),
        form: "none, or a time zone as PostgreSQL names it, such as Asia/Tokyo",
        meaning: "zone of times that are stored without one",
        placeholder: "ZONE",
        secret: false,
        group: Group::Servers,
    },
    Setting {
        name: "open_timeout",
        default: Some("10s"),
        form: "a duration from 1s to 5m, such as 10s",
        meaning: "longest wait for a usable session",
        placeholder: "TIME",
        secret: false,
        group: Group::Servers,
    },
    Setting {
        name: "interval",
        default: Some("30s"),
        form: "a duration from 10ms to 24h, such as 30s, 500ms or 3m",
        meaning: "beat of the fixed rate",
        placeholder: "TIME",
        secret: false,
        group: Group::Pace,
    },
    Setting {
        name: "min_age",
        default: Some("30s"),
        form: "a duration from 0s to 30d, such as 30s",
        meaning: "age at which a WAITING event is due",
        placeholder: "TIME",
        secret: false,
        group: Group::Pace,
    },
    Setting {
        name: "max_age",
        default: Some("none"),
        form: "none, or a duration from 1s to 3650d, such as 3m or 1d",
        meaning: "age at which a WAITING event expires",
        placeholder: "TIME",
        secret: false,
        group: Group::Pace,
    },
    Setting {
        name: "grace",
        default: Some("10s"),
        form: "a duration from 1s to 10m, such as 10s",
        meaning: "longest time from SIGTERM to the end",
        placeholder: "TIME",
        secret: false,
        group: Group::Pace,
    },
    Setting {
        name: "listen",
        default: Some("off"),
        form: SWITCH,
        meaning: "a commit wakes the relay; min_age is 0s then",
        placeholder: "on|off",
        secret: false,
        group: Group::Pace,
    },
    Setting {
        name: "listen_url",
        default: Some("none"),
        form: "none, or the like of database_url",
        meaning: "where it listens, if not at database_url",
        placeholder: "URL",
        secret: true,
        group: Group::Pace,
    },
    Setting {
        name: "batch_rows",
        default: Some("500"),
        form: "a whole number from 1 to 10000",
        meaning: "most events in one claim",
        placeholder: "N",
        secret: false,
        group: Group::Claim,
    },
    Setting {
        name: "batch_bytes",
        default: Some("8MiB"),
        form: "a size from 1KiB to 256MiB, such as 8MiB",
        meaning: "most payload in one claim",
        placeholder: "SIZE",
        secret: false,
        group: Group::Claim,
    },
    Setting {
        name: "claim_max_idle",
        default: Some("60s"),
        form: "a duration from 5s to 1h, such as 60s",
        meaning: "the server ends a claim idle this long",
        placeholder: "TIME",
        secret: false,
        group: Group::Claim,
    },
    Setting {
        name: "workers",
        default: Some("2"),
        form: "a whole number from 1 to 32",
        meaning: "publishing threads, a channel each",
        placeholder: "N",
        secret: false,
        group: Group::Publish,
    },
    Setting {
        name: "window",
        default: Some("256"),
        form: "a whole number from 1 to 10000",
        meaning: "most unconfirmed messages per channel",
        placeholder: "N",
        secret: false,
        group: Group::Publish,
    },
    Setting {
        name: "window_bytes",
        default: Some("4MiB"),
        form: "a size from 1KiB to 64MiB, such as 4MiB",
        meaning: "most unconfirmed bytes per channel",
        placeholder: "SIZE",
        secret: false,
        group: Group::Publish,
    },
    Setting {
        name: "publish_timeout",
        default: Some("15s"),
        form: "a duration from 1s to 10m, such as 15s",
        meaning: "longest wait for the next confirm",
        placeholder: "TIME",
        secret: false,
        group: Group::Publish,
    },
    Setting {
        name: "payload_max",
        default: Some("16MiB"),
        form: "a size from 1KiB to 512MiB, such as 16MiB",
        meaning: "largest payload that is sent",
        placeholder: "SIZE",
        secret: false,
        group: Group::Publish,
    },
    Setting {
        name: "exchange",
        default: Some(""),
        form: "the name of an exchange, at most 200 bytes",
        meaning: "where events go that no route names",
        placeholder: "NAME",
        secret: false,
        group: Group::Publish,
    },
    Setting {
        name: "routing_key",
        default: Some("{event_type}"),
        form: "text in which {event_type} and {ordering_key} stand for the event's own",
        meaning: "their routing key",
        placeholder: "KEY",
        secret: false,
        group: Group::Publish,
    },
    Setting {
        name: "max_failures",
        default: Some("3"),
        form: "a whole number from 1 to 1000",
        meaning: "refusals until an event is DEAD",
        placeholder: "N",
        secret: false,
        group: Group::Failures,
    },
    Setting {
        name: "on_dead",
        default: Some("block"),
        form: "block or skip",
        meaning: "what a DEAD event does to its ordering key",
        placeholder: "WHAT",
        secret: false,
        group: Group::Failures,
    },
    Setting {
        name: "backoff_base",
        default: Some("30s"),
        form: "a duration from 1ms to 24h, such as 30s",
        meaning: "first longest wait after a refusal; doubles",
        placeholder: "TIME",
        secret: false,
        group: Group::Failures,
    },
    Setting {
        name: "backoff_max",
        default: Some("10m"),
        form: "a duration from 1ms to 24h, such as 10m",
        meaning: "longest wait after any refusal",
        placeholder: "TIME",
        secret: false,
        group: Group::Failures,
    },
    Setting {
        name: "retention",
        default: Some("none"),
        form: "none, or a duration from 1s to 3650d, such as 30d",
        meaning: "age at which finished events are purged",
        placeholder: "TIME",
        secret: false,
        group: Group::Failures,
    },
    Setting {
        name: "log_format",
        default: Some("text"),
        form: "text or json",
        meaning: "what lines of the log look like",
        placeholder: "FORMAT",
        secret: false,
        group: Group::Log,
    },
    Setting {
        name: "metrics_addr",
        default: Some("none"),
        form: "none, or an IP address with a port, such as 127.0.0.1:9790",
        meaning: "metrics, health and a status page",
        placeholder: "ADDR",
        secret: false,
        group: Group::Watching,
    },
    Setting {
        name: "metrics_file",
        default: Some("none"),
        form: "none, or the path of a file, such as /var/lib/prometheus/node-exporter/outboxd.prom",
        meaning: "metrics for the textfile collector",
        placeholder: "FILE",
        secret: false,
        group: Group::Watching,
    },
];

/// One key of a `[[route]]` in the configuration file. Routes have neither flags nor variables.
#[derive(Debug, Clone, Copy)]
pub struct RouteKey {
    /// The key.
    pub name: &'static str,
    /// Its value when none is given; without one it must be given.
    pub default: Option<&'static str>,
    /// What a value looks like, as the end of "expected ...".
    pub form: &'static str,
}

impl RouteKey {
    /// The key of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        ROUTE_KEYS.iter().find(|key| key.name == name)
    }
}

/// Every key of a `[[route]]`, in the order in which the README shows them.
pub const ROUTE_KEYS: &[RouteKey] = &[
    RouteKey {
        name: "event_type",
        default: None,
        form: "an event type, where * stands for any run of characters",
    },
    RouteKey { name: "exchange", default: None, form: "the name of an exchange, at most 200 bytes" },
    RouteKey {
        name: "routing_key",
        default: Some("{event_type}"),
        form: "text in which {event_type} and {ordering_key} stand for the event's own",
    },
    RouteKey {
        name: "content_type",
        default: Some(CONTENT_TYPE),
        form: "a media type of 1 to 255 bytes, such as application/json",
    },
    RouteKey { name: "unroutable", default: Some("fail"), form: "fail or accept" },
];
