//! I9 to I12: the relays as processes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ledger::{End, Fault, Life, Millis, Sample};
use crate::setting::{RELAYS, Settings, name, settings};

use super::{Facts, Violations};

/// What a slow machine adds to any time.
const SLACK: Duration = Duration::from_secs(15);

/// What a relay may have beyond what it had before the first fault, once all are over.
const MORE_THREADS: u64 = 6;
const MORE_FILES: u64 = 8;
const MORE_RSS_KIB: u64 = 8 * 1024;

/// What it may have beyond that while faults go on: connections and sessions that are being given up.
const MOST_THREADS: u64 = 40;
const MOST_FILES: u64 = 40;

/// How long after the last fault a relay is at rest again.
const AT_REST: Millis = 15_000;

/// The most lines of a log at the default level, at the start of a process and for each second of its life.
const LINES_START: u64 = 60;
const LINES_SECOND: u64 = 5;
const BYTES_LINE: u64 = 600;

pub fn judge(facts: &Facts, violations: &mut Violations) {
    for relay in 0..RELAYS {
        resources(relay, facts, violations);
    }
    for life in &facts.lives {
        ended(life, violations);
        logged(life, violations);
    }
    for leak in &facts.leaks {
        violations.add("I11", leak.clone());
    }
    for fault in &facts.faults {
        pace(fault, facts, violations);
    }
}

/// The memory of a relay before the first fault, and at rest after the last one, in KiB.
pub fn memory(relay: usize, facts: &Facts) -> Option<(u64, u64)> {
    let first = facts.faults.iter().map(|fault| fault.start).min().unwrap_or(Millis::MAX);
    let samples = || facts.samples.iter().filter(|sample| sample.relay == relay);
    let before = samples().filter(|it| it.at < first).map(|it| it.rss_kib).max()?;
    let after = samples().filter(|it| is_at_rest(it, facts)).map(|it| it.rss_kib).min()?;
    Some((before, after))
}

fn is_at_rest(sample: &Sample, facts: &Facts) -> bool {
    sample.healed && sample.at >= facts.healed + AT_REST
}

/// I9: what a process takes.
fn resources(relay: usize, facts: &Facts, violations: &mut Violations) {
    let samples: Vec<&Sample> = facts.samples.iter().filter(|sample| sample.relay == relay).collect();
    let first = facts.faults.iter().map(|fault| fault.start).min().unwrap_or(Millis::MAX);
    let most = |of: fn(&Sample) -> u64| samples.iter().filter(|it| it.at < first).map(|it| of(it)).max();
    let (Some(threads), Some(files), Some(rss)) =
        (most(|it| it.threads), most(|it| it.files), most(|it| it.rss_kib))
    else {
        violations.add("I9", format!("{} was not looked at before the first fault", name(relay)));
        return;
    };
    let rss_max = rss + in_flight_kib(&settings(relay));
    for sample in &samples {
        if sample.threads > threads + MOST_THREADS || sample.files > files + MOST_FILES {
            violations
                .add("I9", format!("more than {threads} threads and {files} files explain: {sample:?}"));
        }
        if sample.rss_kib > rss_max {
            violations.add("I9", format!("more than {rss_max} KiB of memory: {sample:?}"));
        }
    }
    // One that is given up is gone before another is opened: a look may see both, two looks may not.
    for pair in samples.windows(2) {
        if let [one, two] = pair {
            if one.pid == two.pid && one.broker_held.min(two.broker_held) > 1 {
                violations.add("I9", format!("more than one connection to the broker: {one:?} {two:?}"));
            }
        }
    }
    // At rest, what counts is what it comes down to: a session more may be open at any moment.
    let least =
        |of: fn(&Sample) -> u64| samples.iter().filter(|it| is_at_rest(it, facts)).map(|it| of(it)).min();
    let at_rest = (least(|it| it.threads), least(|it| it.files), least(|it| it.rss_kib));
    let (Some(threads_now), Some(files_now), Some(rss_now)) = at_rest else {
        violations.add("I9", format!("{} was not looked at after the last fault", name(relay)));
        return;
    };
    if threads_now > threads + MORE_THREADS || files_now > files + MORE_FILES {
        violations.add(
            "I9",
            format!(
                "{} has {threads_now} threads and {files_now} files after all faults, {threads} and {files} before",
                name(relay)
            ),
        );
    }
    if rss_now > rss * 3 / 2 + MORE_RSS_KIB {
        violations.add("I9", format!("{} has {rss_now} KiB after all faults, {rss} KiB before", name(relay)));
    }
}

/// What may be in memory beside the rest: four claims of `batch_bytes` (8 MiB), and a window of `window_bytes` (4 MiB)
/// and the client's buffer (16 MiB) for each of two connections, one of them being given up.
fn in_flight_kib(settings: &Settings) -> u64 {
    (4 * 8 + 2 * (4 * settings.workers + 16)) * 1024
}

/// I10: how a process ended.
fn ended(life: &Life, violations: &mut Violations) {
    let grace = settings(life.relay).grace;
    let fits = match &life.end {
        End::Killed => true,
        End::Asked { took_ms, code } => {
            u128::from(*took_ms) <= (grace + SLACK).as_millis() && matches!(code, Some(0 | 75))
        }
        End::Done { code } => code.is_some_and(|code| code != 70 && code < 100),
        End::Stuck { .. } | End::Unasked { .. } => false,
    };
    if !fits {
        let lasted = life.to - life.from;
        violations.add(
            "I10",
            format!("{} (process {}) ended after {lasted} ms: {:?}", name(life.relay), life.pid, life.end),
        );
    }
}

/// I9: what a process says.
fn logged(life: &Life, violations: &mut Violations) {
    let most = LINES_START + LINES_SECOND * (life.to - life.from).div_ceil(1000);
    let is_wordy = life.log_lines > most || life.log_bytes > most * BYTES_LINE;
    if is_wordy && !settings(life.relay).verbose {
        violations.add(
            "I9",
            format!(
                "{} wrote {} lines and {} bytes of log in {} ms",
                name(life.relay),
                life.log_lines,
                life.log_bytes,
                life.to - life.from
            ),
        );
    }
}

/// I12: how often a relay knocks at a server that is down, as the proxy before it counts. Looks that are a second apart
/// see a little more than the fault.
fn pace(fault: &Fault, facts: &Facts, violations: &mut Violations) {
    let opened: fn(&Sample) -> u64 = match fault.kind.as_str() {
        "BrokerKill" | "BrokerRestart" => |sample| sample.broker_opened,
        "DatabaseKill" | "DatabaseFast" | "DatabaseImmediate" => |sample| sample.database_opened,
        _ => return,
    };
    let mut relays: BTreeMap<usize, Vec<&Sample>> = BTreeMap::new();
    for sample in facts.samples.iter().filter(|it| (fault.start..=fault.healed).contains(&it.at)) {
        relays.entry(sample.relay).or_default().push(sample);
    }
    for (relay, samples) in relays {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { continue };
        let knocks = opened(last).saturating_sub(opened(first));
        let most = knocks_max(&settings(relay), last.at - first.at);
        // Another process knows nothing of how often the one before it has knocked.
        if first.pid == last.pid && knocks > most {
            violations.add(
                "I12",
                format!(
                    "{} opened {knocks} connections in {} ms of {}, its back-off allows {most}",
                    name(relay),
                    last.at - first.at,
                    fault.kind
                ),
            );
        }
    }
}

/// By the law of the back-off: 200 ms, doubled with each try up to 5 s, and never more than the interval. A try opens one
/// connection, and up to three where the database is meant: for the claim, for listening, and for looking at the
/// backlog. The first try of a lost connection may be repeated three times at once.
fn knocks_max(settings: &Settings, time: Millis) -> u64 {
    let (mut tries, mut at, mut pause) = (1, 0, 200);
    while at < time {
        at += pause.min(settings.interval.as_millis() as u64);
        pause = (pause * 2).min(5000);
        tries += 1;
    }
    3 * tries + 3
}

#[cfg(test)]
mod tests {
    use super::super::samples::verdict;
    use super::*;

    fn sample(relay: usize, at: Millis) -> Sample {
        Sample {
            relay,
            pid: 7,
            at,
            rss_kib: 10_000,
            threads: 12,
            files: 20,
            broker_held: 1,
            broker_opened: 1,
            database_opened: 2,
            healed: at > 100_000,
        }
    }

    /// Each relay before the fault, under it, and at rest.
    fn facts() -> Facts {
        let fault = Fault { kind: "BrokerKill".into(), relay: None, start: 10_000, healed: 18_000 };
        let at = [5_000, 11_000, 17_000, 160_000];
        let samples = (0..RELAYS).flat_map(|relay| at.map(|at| sample(relay, at))).collect();
        Facts { faults: vec![fault], samples, healed: 100_000, ..Facts::default() }
    }

    fn life(relay: usize, end: End) -> Life {
        Life { relay, pid: 7, from: 0, to: 10_000, end, log_lines: 50, log_bytes: 5_000 }
    }

    fn broken(change: impl FnOnce(&mut Facts)) -> String {
        let mut facts = facts();
        change(&mut facts);
        verdict(judge, &facts)
    }

    #[test]
    fn processes_that_keep_within_their_bounds_are_taken() {
        assert_eq!(broken(|_| ()), "");
        let ends = [
            (0, End::Killed),
            (0, End::Asked { took_ms: 9_000, code: Some(0) }),
            (0, End::Asked { took_ms: 9_000, code: Some(75) }),
            (RELAYS, End::Done { code: Some(69) }),
        ];
        for (relay, end) in ends {
            assert_eq!(broken(|facts| facts.lives.push(life(relay, end))), "");
        }
        // Under a fault there may be more of everything, and more at a single moment after it.
        assert_eq!(broken(|facts| facts.samples[1].threads += 20), "");
        assert_eq!(broken(|facts| facts.samples.push(Sample { threads: 30, ..sample(0, 160_000) })), "");
        // A connection that is being given up, for a moment.
        assert_eq!(broken(|facts| facts.samples[1].broker_held = 2), "");
        // 8 s at the shortest interval.
        assert_eq!(broken(|facts| facts.samples[6].broker_opened += 60), "");
    }

    #[test]
    fn each_process_beyond_its_bounds_is_found() {
        assert_eq!(broken(|facts| facts.samples[3].threads += 7), "I9");
        assert_eq!(broken(|facts| facts.samples[3].files += 9), "I9");
        assert_eq!(broken(|facts| facts.samples[3].rss_kib += 20_000), "I9");
        assert_eq!(broken(|facts| facts.samples[1..3].iter_mut().for_each(|it| it.broker_held = 2)), "I9");
        assert_eq!(broken(|facts| facts.samples[1].threads += 41), "I9");
        assert_eq!(broken(|facts| facts.samples[1].rss_kib += 200_000), "I9");
        assert_eq!(
            broken(|facts| {
                facts.samples.pop();
            }),
            "I9"
        );
        assert_eq!(
            broken(|facts| {
                facts.samples.remove(0);
            }),
            "I9"
        );
        let ends = [
            (0, End::Asked { took_ms: 24_000, code: Some(0) }),
            (0, End::Asked { took_ms: 10, code: Some(70) }),
            (0, End::Asked { took_ms: 10, code: None }),
            (0, End::Stuck { waited_ms: 90_000 }),
            (0, End::Unasked { code: Some(0), signal: None }),
            (RELAYS, End::Done { code: Some(70) }),
            (RELAYS, End::Done { code: None }),
        ];
        for (relay, end) in ends {
            let shown = format!("{end:?}");
            assert_eq!(broken(|facts| facts.lives.push(life(relay, end))), "I10", "{shown}");
        }
        let wordy = |lines, bytes| Life { log_lines: lines, log_bytes: bytes, ..life(0, End::Killed) };
        assert_eq!(broken(|facts| facts.lives.push(wordy(111, 5_000))), "I9");
        assert_eq!(broken(|facts| facts.lives.push(wordy(50, 100_000))), "I9");
        assert_eq!(broken(|facts| facts.leaks.push("a password in log-1".into())), "I11");
        // Relay 0 has an interval of 2 s: 6 tries in 6 s, each of up to three connections.
        assert_eq!(broken(|facts| facts.samples[2].broker_opened += 40), "I12");
    }
}
