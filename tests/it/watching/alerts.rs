//! The alerts and the dashboard that come along: they name metrics that there are, and the alerts fire.

use std::collections::BTreeSet;
use std::{env, fs};

use super::{get, promtool, shown};
use crate::harness::unique;
use crate::world::World;

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/alerts.yml");
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/grafana-dashboard.json");

/// Every word of the text that begins like a metric of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = |word: &&str| word.starts_with("outboxd_") || word.starts_with("process_");
    words.filter(ours).map(str::to_owned).collect()
}

/// The names of all samples that `run` and `once` can give.
fn known() -> BTreeSet<String> {
    let world = World::new();
    let (_relay, addr) = shown(&world, &[]);
    let file = env::temp_dir().join(unique("outboxd-alerts"));
    world.once(&["--metrics-file", file.to_str().unwrap()], 0);
    let text = get(addr, "/metrics").body + &fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        match kind {
            "histogram" => names.extend(["bucket", "sum", "count"].map(|it| format!("{name}_{it}"))),
            _ => drop(names.insert(name.to_owned())),
        }
    }
    names
}

#[test]
fn alerts_and_dashboard_name_only_metrics_that_there_are() {
    let known = known();
    for path in [ALERTS, DASHBOARD] {
        let named = named(&fs::read_to_string(path).unwrap());
        assert!(named.len() > 5, "{path}: {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}, but there are {known:?}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&fs::read_to_string(DASHBOARD).unwrap()).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

/// A relay whose beat is an hour is not late after ten minutes, and is after three hours.
#[test]
fn the_alerts_about_time_know_the_beat() {
    let series = [
        ("OutboxdNoSuccess", "outboxd_last_success_timestamp_seconds", "0+0x300"),
        ("OutboxdLagging", "outboxd_oldest_due_age_seconds", "0+60x300"),
    ];
    let mut text = format!("rule_files: [{ALERTS}]\nevaluation_interval: 1m\ntests:\n");
    for (alert, name, values) in series {
        for (beat, minutes, firing) in [
            // None: runs of cron.
            (None, 25, 1),
            (Some(30), 25, 1),
            (Some(3600), 60, 0),
            (Some(3600), 119, 0),
            (Some(3600), 180, 1),
        ] {
            let beat = beat.map(|beat| {
                format!("      - {{series: outboxd_interval_seconds, values: '{beat}+0x300'}}\n")
            });
            text += &format!(
                "  - interval: 1m\n    input_series:\n      - {{series: {name}, values: '{values}'}}\n{}    \
                 promql_expr_test:\n      - expr: 'count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}) or vector(0)'\n        \
                 eval_time: {minutes}m\n        exp_samples: [{{value: {firing}}}]\n",
                beat.unwrap_or_default(),
            );
        }
    }
    let file = env::temp_dir().join(unique("outboxd-rules"));
    fs::write(&file, &text).unwrap();
    let said = promtool(&["test", "rules", file.to_str().unwrap()], "");
    fs::remove_file(&file).unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
fn the_alerts_are_rules_and_fire_when_they_should() {
    promtool(&["check", "rules", ALERTS], "");
    let quiet = "  - interval: 1m\n    input_series:\n      \
        - {series: outboxd_build_info, values: '1+0x90'}\n      \
        - {series: outboxd_oldest_due_age_seconds, values: '20+0x90'}\n      \
        - {series: outboxd_last_success_timestamp_seconds, values: '0+60x90'}\n      \
        - {series: outboxd_backlog_timestamp_seconds, values: '0+60x90'}\n      \
        - {series: 'outboxd_up{server=\"broker\"}', values: '1+0x90'}\n      \
        - {series: outboxd_broker_blocked, values: '0+0x90'}\n      \
        - {series: 'outboxd_events_dead_total{reason=\"unroutable\"}', values: '4+0x90'}\n      \
        - {series: 'outboxd_events{status=\"dead\"}', values: '0+0x90'}\n      \
        - {series: outboxd_blocked_keys, values: '0+0x90'}\n    alert_rule_test:\n";
    // Each with a series that makes it fire.
    let firing = [
        ("OutboxdGone", "up{job=\"outboxd\"}", "0+0x90", ""),
        ("OutboxdLagging", "outboxd_oldest_due_age_seconds", "400+0x90", ""),
        ("OutboxdNoSuccess", "outboxd_last_success_timestamp_seconds", "0+0x90", ""),
        ("OutboxdServerDown", "outboxd_up{server=\"broker\"}", "0+0x90", "server: broker"),
        ("OutboxdBrokerBlocked", "outboxd_broker_blocked", "1+0x90", ""),
        ("OutboxdDeadEvents", "outboxd_events_dead_total{reason=\"denied\"}", "0+1x90", "reason: denied"),
        ("OutboxdDeadEventsLeft", "outboxd_events{status=\"dead\"}", "2+0x90", "status: dead"),
        ("OutboxdKeysBlocked", "outboxd_blocked_keys", "1+0x90", ""),
        (
            "OutboxdPossibleDuplicates",
            "outboxd_possible_duplicates_total{reason=\"connection\"}",
            "0+100x90",
            "",
        ),
        ("OutboxdBacklogUnknown", "outboxd_build_info", "1+0x90", ""),
        ("OutboxdRunFailed", "outboxd_last_run_success", "0+0x90", ""),
    ];
    let mut text = format!("rule_files: [{ALERTS}]\nevaluation_interval: 1m\ntests:\n{quiet}");
    for (alert, ..) in firing {
        text += &format!("      - {{eval_time: 50m, alertname: {alert}, exp_alerts: []}}\n");
    }
    let rules = fs::read_to_string(ALERTS).unwrap();
    assert_eq!(rules.matches("- alert: ").count(), firing.len(), "each alert has its case");
    for (alert, series, values, labels) in firing {
        let (_, rule) = rules.split_once(&format!("alert: {alert}\n")).unwrap();
        let severity = rule.split("severity: ").nth(1).unwrap().lines().next().unwrap();
        let labels = [&format!("severity: {severity}"), labels].map(str::to_owned).join(", ");
        text += &format!(
            "  - interval: 1m\n    input_series:\n      - {{series: '{series}', values: '{values}'}}\n    \
             promql_expr_test:\n      - expr: 'count by (alertname, severity, server, reason, status) \
             (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})'\n        eval_time: 75m\n        exp_samples:\n          \
             - {{labels: '{{alertname=\"{alert}\", {}}}', value: 1}}\n",
            labels.trim_end_matches(", ").replace(": ", "=\"").replace(", ", "\", ") + "\"",
        );
    }
    let file = env::temp_dir().join(unique("outboxd-rules"));
    fs::write(&file, &text).unwrap();
    let said = promtool(&["test", "rules", file.to_str().unwrap()], "");
    fs::remove_file(&file).unwrap();
    assert!(said.contains("SUCCESS"), "{said}");
}
