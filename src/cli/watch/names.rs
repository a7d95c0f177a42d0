//! Every metric by its name, kind, labels and meaning. The README's table repeats this one; a test holds them together.

/// A family of samples with one name.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, help }
}

pub(super) const BUILD_INFO: Metric = gauge("outboxd_build_info", "Always 1; the version and its features.");

pub(super) const TICKS: Metric = counter("outboxd_ticks_total", "Ticks, by how they ended.");
pub(super) const TICK_DURATION: Metric = histogram("outboxd_tick_duration_seconds", "How long a tick took.");
pub(super) const LAST_SUCCESS: Metric = gauge(
    "outboxd_last_success_timestamp_seconds",
    "When a tick, or a run of once, last met no trouble with a server.",
);

pub(super) const CLAIMED: Metric =
    counter("outboxd_events_claimed_total", "Events claimed, whatever became of them.");
pub(super) const PUBLISHED: Metric =
    counter("outboxd_events_published_total", "Events confirmed by the broker and settled as PUBLISHED.");
pub(super) const FAILED: Metric =
    counter("outboxd_events_failed_total", "Attempts refused, to be made again, by reason.");
pub(super) const DEAD: Metric =
    counter("outboxd_events_dead_total", "Events that became DEAD, by the reason of the last refusal.");
pub(super) const EXPIRED: Metric =
    counter("outboxd_events_expired_total", "Events whose time passed before they were sent.");
pub(super) const POSSIBLE_DUPLICATES: Metric = counter(
    "outboxd_possible_duplicates_total",
    "Attempts that ended without a confirm, by reason: the event is sent again, and may arrive twice.",
);
pub(super) const RELEASED: Metric =
    counter("outboxd_events_released_total", "Events handed back without being sent.");
pub(super) const GONE: Metric = counter(
    "outboxd_events_gone_total",
    "Events that someone else deleted or finished between claim and settle.",
);
pub(super) const UNWRITTEN: Metric = counter(
    "outboxd_events_unwritten_total",
    "Events of which the table refused to hold what became of them.",
);

pub(super) const BATCH: Metric = histogram("outboxd_batch_events", "Events in a claim.");
pub(super) const CLAIM_DURATION: Metric =
    histogram("outboxd_claim_duration_seconds", "How long a claim took that found events.");
pub(super) const PUBLISH_DURATION: Metric =
    histogram("outboxd_publish_duration_seconds", "From a claim to the outcome of the last of its events.");
pub(super) const SETTLE_DURATION: Metric =
    histogram("outboxd_settle_duration_seconds", "How long it took to write and commit a claim's outcomes.");
pub(super) const CONFIRM_DURATION: Metric = histogram(
    "outboxd_confirm_duration_seconds",
    "From a message being handed to the broker's client to the broker's answer.",
);

pub(super) const UP: Metric = gauge("outboxd_up", "Whether the relay could use the server when it last did.");
pub(super) const BROKER_BLOCKED: Metric =
    gauge("outboxd_broker_blocked", "Whether the broker blocks publishers (a memory or disk alarm).");
pub(super) const RECONNECTS: Metric =
    counter("outboxd_reconnects_total", "How often a server was usable again after it had not been.");
pub(super) const WAKEUPS: Metric =
    counter("outboxd_wakeups_total", "How often a commit that was heard ended the wait for the next beat.");

pub(super) const EVENTS: Metric =
    gauge("outboxd_events", "Unfinished and dead events in the table, by status.");
pub(super) const BACKLOG: Metric =
    gauge("outboxd_backlog_events", "Unfinished events in the table, by what they wait for.");
pub(super) const OLDEST_DUE: Metric = gauge(
    "outboxd_oldest_due_age_seconds",
    "How long the oldest due event has been due, by the database's clock; 0 when nothing is.",
);
pub(super) const BLOCKED_KEYS: Metric = gauge(
    "outboxd_blocked_keys",
    "Ordering keys whose first unfinished event is dead, backs off, or is scheduled while others wait.",
);
pub(super) const BACKLOG_TIMESTAMP: Metric = gauge(
    "outboxd_backlog_timestamp_seconds",
    "When the table was last looked at for the figures above, which are left out once that is long ago.",
);

pub(super) const RUN_TIMESTAMP: Metric =
    gauge("outboxd_last_run_timestamp_seconds", "When the last run of once ended.");
pub(super) const RUN_DURATION: Metric =
    gauge("outboxd_last_run_duration_seconds", "How long the last run of once took.");
pub(super) const RUN_SUCCESS: Metric =
    gauge("outboxd_last_run_success", "Whether the last run of once met no trouble with a server.");
pub(super) const RUN_EXIT_CODE: Metric =
    gauge("outboxd_last_run_exit_code", "The exit code of the last run of once.");
pub(super) const RUN_EVENTS: Metric =
    gauge("outboxd_last_run_events", "What became of events in the last run of once.");

pub(super) const CPU: Metric = counter("process_cpu_seconds_total", "CPU time used, user and system.");
pub(super) const RESIDENT: Metric = gauge("process_resident_memory_bytes", "Resident memory.");
pub(super) const VIRTUAL: Metric = gauge("process_virtual_memory_bytes", "Virtual memory.");
pub(super) const OPEN_FDS: Metric = gauge("process_open_fds", "Open file descriptors.");
pub(super) const MAX_FDS: Metric = gauge("process_max_fds", "The limit on open file descriptors.");
pub(super) const THREADS: Metric = gauge("process_threads", "Threads.");
pub(super) const START_TIME: Metric = gauge("process_start_time_seconds", "When the process started.");
