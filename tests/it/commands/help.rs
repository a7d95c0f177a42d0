//! Help and usage.

use outboxd::config::SETTINGS;

use super::ends;

#[test]
fn every_command_has_its_help() {
    for command in
        ["init", "check", "run", "once", "enqueue", "status", "list", "show", "retry", "skip", "purge"]
    {
        let help = ends(0, &[command, "--help"], &[]);
        assert!(help.stdout.contains(&format!("Usage: outboxd {command}")), "{help:?}");
        assert!(help.stdout.contains("Examples:"), "{help:?}");
        assert_eq!(help.stderr, "");
    }
    let help = ends(0, &["run", "--help"], &[]);
    for setting in SETTINGS {
        assert!(help.stdout.contains(&setting.flag()), "{}: {help:?}", setting.name);
        assert!(help.stdout.contains(&setting.variable()), "{}: {help:?}", setting.name);
    }
    let all = ends(0, &["--help"], &[]);
    for command in
        ["init", "check", "run", "once", "enqueue", "status", "list", "show", "retry", "skip", "purge"]
    {
        assert!(all.stdout.contains(&format!("\n  {command} ")), "{command}: {all:?}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let version = ends(0, &["--version"], &[]);
    assert_eq!(version.stdout, format!("outboxd {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_command_line_that_is_not_understood_ends_with_64() {
    let cases = [
        (&[][..], "Usage: outboxd"),
        (&["relay"], "relay"),
        (&["run", "--batch-row", "1"], "--batch-rows"),
        (&["once", "--interval", "1s"], "--interval"),
        (&["enqueue"], "<TYPE>"),
        (&["status", "now"], "now"),
        (&["init", "--table"], "--table"),
        (&["enqueue", "x", "--delay", "soon"], "expected a duration"),
    ];
    for (line, hint) in cases {
        let refused = ends(64, line, &[]);
        assert!(refused.stderr.contains(hint), "{line:?}: {refused:?}");
        assert_eq!(refused.stdout, "", "{line:?}");
    }
}

#[test]
fn a_misplaced_url_is_not_repeated() {
    let url = super::no_database();
    ends(64, &["run", &url], &[]);
    ends(64, &[&url], &[]);
    ends(64, &["run", &format!("--databaseurl={url}")], &[]);
}
