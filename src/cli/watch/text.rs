//! The numbers as text, in the exposition format of Prometheus (version 0.0.4), which its server and the textfile
//! collector of the node exporter read.
//!
//! Written by hand: it is lines, while the official client brings a registry of shared counters, three crates and a
//! derive macro for what one struct behind one lock is here already. A test has `promtool` read it.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use outboxd::event::Tally;

use super::gather::Figures;
use super::histogram::Histogram;
use super::names::{self, Kind, Metric};
use super::numbers::{ByReason, Numbers};
use super::process::Process;

/// What an HTTP client is told that this is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A run of `once`, when it has ended.
#[derive(Debug, Clone)]
pub(super) struct LastRun {
    pub(super) ended: SystemTime,
    pub(super) took: Duration,
    pub(super) tally: Tally,
    pub(super) succeeded: bool,
    pub(super) exit_code: u8,
    /// Of any run, in seconds since 1970.
    pub(super) last_success: Option<f64>,
    pub(super) figures: Option<Figures>,
}

/// Everything that `run` has to say.
pub(super) fn of_run(numbers: &Numbers, process: &Process) -> String {
    let mut out = Text::default();
    out.build_info();
    let [fine, in_trouble] = numbers.ticks;
    out.family(&names::TICKS);
    out.sample(&names::TICKS, &[("result", "ok")], whole(fine));
    out.sample(&names::TICKS, &[("result", "trouble")], whole(in_trouble));
    out.histogram(&names::TICK_DURATION, &numbers.tick);
    out.optional(&names::LAST_SUCCESS, numbers.last_success.map(unix));

    out.single(&names::CLAIMED, whole(numbers.claimed));
    out.single(&names::PUBLISHED, whole(numbers.settled.published));
    out.by_reason(&names::FAILED, &numbers.failed, false);
    out.by_reason(&names::DEAD, &numbers.dead, false);
    out.single(&names::EXPIRED, whole(numbers.settled.expired));
    out.by_reason(&names::POSSIBLE_DUPLICATES, &numbers.possible_duplicates, true);
    out.single(&names::RELEASED, whole(numbers.settled.released));
    out.single(&names::GONE, whole(numbers.settled.gone));
    out.single(&names::UNWRITTEN, whole(numbers.settled.unwritten));

    out.histogram(&names::BATCH, &numbers.batch);
    out.histogram(&names::CLAIM_DURATION, &numbers.claim);
    out.histogram(&names::PUBLISH_DURATION, &numbers.publish);
    out.histogram(&names::SETTLE_DURATION, &numbers.settle);
    out.histogram(&names::CONFIRM_DURATION, &numbers.confirm);

    let servers = [("database", &numbers.database), ("broker", &numbers.broker)];
    out.family(&names::UP);
    for (server, standing) in servers {
        out.sample(&names::UP, &[("server", server)], truth(standing.up == Some(true)));
    }
    out.single(&names::BROKER_BLOCKED, truth(numbers.broker.blocked));
    out.family(&names::RECONNECTS);
    for (server, standing) in servers {
        out.sample(&names::RECONNECTS, &[("server", server)], whole(standing.reconnects));
    }
    out.single(&names::WAKEUPS, whole(numbers.wakeups));
    out.figures(numbers.figures.as_ref());
    out.process(process, numbers.started);
    out.0
}

/// Everything that `once` leaves behind. No counters: they would start over at each run.
pub(super) fn of_once(run: &LastRun) -> String {
    let mut out = Text::default();
    out.build_info();
    out.optional(&names::LAST_SUCCESS, run.last_success);
    out.single(&names::RUN_TIMESTAMP, unix(run.ended));
    out.single(&names::RUN_DURATION, run.took.as_secs_f64());
    out.single(&names::RUN_SUCCESS, truth(run.succeeded));
    out.single(&names::RUN_EXIT_CODE, f64::from(run.exit_code));
    let Tally { claimed, published, failed, dead, expired, unconfirmed, released, gone, unwritten } =
        run.tally;
    out.family(&names::RUN_EVENTS);
    for (outcome, count) in [
        ("claimed", claimed),
        ("published", published),
        ("failed", failed),
        ("dead", dead),
        ("expired", expired),
        ("unconfirmed", unconfirmed),
        ("released", released),
        ("gone", gone),
        ("unwritten", unwritten),
    ] {
        out.sample(&names::RUN_EVENTS, &[("outcome", outcome)], whole(count));
    }
    out.figures(run.figures.as_ref());
    out.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, metric: &Metric) {
        let Metric { name, kind, help } = metric;
        // Our own texts: neither a backslash nor a line's end is in them.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str());
    }

    fn sample(&mut self, metric: &Metric, labels: &[(&str, &str)], value: f64) {
        self.line(metric.name, "", labels, value);
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        self.0.push_str(suffix);
        for (place, (label, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{before}{label}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }

    fn single(&mut self, metric: &Metric, value: f64) {
        self.optional(metric, Some(value));
    }

    /// The family is there in any case.
    fn optional(&mut self, metric: &Metric, value: Option<f64>) {
        self.family(metric);
        value.into_iter().for_each(|value| self.sample(metric, &[], value));
    }

    /// Those that there are, of both kinds of reasons.
    fn by_reason(&mut self, metric: &Metric, counts: &ByReason, in_doubt: bool) {
        self.family(metric);
        for (reason, count) in counts.iter().filter(|(it, _)| it.leaves_doubt() == in_doubt) {
            self.sample(metric, &[("reason", reason.as_str())], whole(count));
        }
    }

    fn histogram(&mut self, metric: &Metric, histogram: &Histogram) {
        debug_assert_eq!(metric.kind, Kind::Histogram);
        self.family(metric);
        for (bound, count) in histogram.buckets() {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".into() };
            self.line(metric.name, "_bucket", &[("le", &bound)], whole(count));
        }
        self.line(metric.name, "_sum", &[], histogram.sum());
        self.line(metric.name, "_count", &[], whole(histogram.count()));
    }

    fn build_info(&mut self) {
        self.family(&names::BUILD_INFO);
        let tls = if cfg!(feature = "tls") { "yes" } else { "no" };
        self.sample(&names::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION")), ("tls", tls)], 1.0);
    }

    /// Figures that say nothing about now are left out.
    fn figures(&mut self, figures: Option<&Figures>) {
        let figures = figures.filter(|it| !it.is_stale());
        self.family(&names::EVENTS);
        if let Some(it) = figures.and_then(|it| it.unfinished) {
            for (status, count) in [("waiting", it.waiting), ("failed", it.failed), ("dead", it.dead)] {
                self.sample(&names::EVENTS, &[("status", status)], whole(count));
            }
        }
        let backlog = figures.and_then(|it| it.backlog.as_ref());
        self.family(&names::BACKLOG);
        if let Some(it) = backlog {
            for (state, count) in [
                ("due", it.due),
                ("young", it.young),
                ("backing_off", it.backing_off),
                ("scheduled", it.scheduled),
                ("held_back", it.held_back),
            ] {
                self.sample(&names::BACKLOG, &[("state", state)], whole(count));
            }
        }
        let oldest = backlog.map(|it| it.oldest_due.unwrap_or_default().as_secs_f64());
        self.optional(&names::OLDEST_DUE, oldest);
        let blocked = figures.and_then(|it| it.blocked.as_ref());
        self.optional(&names::BLOCKED_KEYS, blocked.map(|it| whole(it.count)));
        self.optional(&names::BACKLOG_TIMESTAMP, figures.map(|it| unix(it.at)));
    }

    fn process(&mut self, process: &Process, started: SystemTime) {
        self.optional(&names::CPU, process.cpu_seconds);
        self.optional(&names::RESIDENT, process.resident_bytes);
        self.optional(&names::VIRTUAL, process.virtual_bytes);
        self.optional(&names::OPEN_FDS, process.open_fds);
        self.optional(&names::MAX_FDS, process.max_fds);
        self.optional(&names::THREADS, process.threads);
        self.single(&names::START_TIME, unix(started));
    }
}

#[allow(clippy::cast_precision_loss, reason = "the format knows only floating-point numbers")]
fn whole(count: u64) -> f64 {
    count as f64
}

fn truth(it: bool) -> f64 {
    f64::from(u8::from(it))
}

/// Seconds since 1970.
pub(super) fn unix(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests;
