//! Where settings come from, which of them wins, and how a bad one is told.

use super::{PASSWORD, ends, no_broker, no_database};
use crate::harness::Output;
use crate::world::World;

const URLS: [(&str, &str); 2] = [("DATABASE_URL", "postgres://db"), ("AMQP_URL", "amqp://mq")];

/// What is told about this configuration file, a line each.
fn problems_of(toml: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let world = World::new();
    world.configure(toml);
    let file = world.config_path();
    let output = ends(78, &[&["once", "--config", file], arguments].concat(), &[&URLS, variables].concat());
    assert_eq!(output.stdout, "");
    output.stderr.lines().map(|line| line.replace(file, "FILE")).collect()
}

#[test]
fn a_flag_beats_the_environment_and_that_beats_the_file() {
    let mut world = World::new();
    world.insert_with("x", "{}", "created_at", "now()");
    let min_age_of = |output: Output| {
        let (_, rest) = output.stdout.split_once("younger than min_age ").unwrap();
        rest.split(':').next().unwrap().to_owned()
    };
    world.configure("min_age = \"3h\"");
    let (database, broker) = (world.database.url.as_str(), world.amqp_url.as_str());
    let urls = [("DATABASE_URL", database), ("AMQP_URL", broker)];
    let variable = [&urls[..], &[("OUTBOXD_MIN_AGE", "2h")]].concat();
    let file = ["once", "--config", world.config_path()];
    let flag = [&file[..], &["--min-age", "1h"]].concat();
    assert_eq!(min_age_of(ends(0, &["once"], &urls)), "30s");
    assert_eq!(min_age_of(ends(0, &file, &urls)), "3h");
    assert_eq!(min_age_of(ends(0, &file, &variable)), "2h");
    assert_eq!(min_age_of(ends(0, &flag, &variable)), "1h");
    // The file may come from the environment, and may hold the URLs.
    world.configure(&format!("min_age = \"4h\"\ndatabase_url = \"{database}\"\namqp_url = \"{broker}\""));
    assert_eq!(min_age_of(ends(0, &["once"], &[("OUTBOXD_CONFIG", world.config_path())])), "4h");
}

#[test]
fn all_problems_of_all_sources_are_told_at_once() {
    let toml = "interval = \"soon\"\nbatch_row = 5\n\n[[route]]\nexchange = \"x\"\nunroutable = \"drop\"\n";
    let problems =
        problems_of(toml, &["--window", "0"], &[("OUTBOXD_WORKERS", "many"), ("OUTBOXD_WINDW", "1")]);
    let expected = [
        "batch_row in FILE line 2: unknown; did you mean batch_rows?",
        "OUTBOXD_WINDW: unknown; did you mean OUTBOXD_WINDOW?",
        "--window \"0\": expected a whole number from 1 to 10000",
        "OUTBOXD_WORKERS \"many\": expected a whole number from 1 to 32",
        "interval in FILE line 1 \"soon\": expected a duration from 10ms to 24h, such as 30s, 500ms or 3m",
        "unroutable of route 1 in FILE line 6 \"drop\": expected fail or accept",
        "event_type of route 1 in FILE line 4: missing; expected an event type, where * stands for any run of \
            characters",
    ];
    for line in expected {
        assert!(problems.contains(&format!("outboxd: {line}")), "{line:?} in {problems:#?}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
}

#[test]
fn relations_between_settings_are_checked() {
    let problems = problems_of("min_age = \"5m\"\nmax_age = \"3m\"\nbackoff_base = \"1h\"", &[], &[]);
    assert!(
        problems.iter().any(|line| line.contains("max_age") && line.contains("min_age")),
        "{problems:#?}"
    );
    assert!(
        problems.iter().any(|line| line.contains("backoff_base") && line.contains("backoff_max")),
        "{problems:#?}"
    );
    assert_eq!(problems.len(), 2, "{problems:#?}");
}

#[test]
fn missing_urls_are_told_with_every_way_to_give_them() {
    for command in ["run", "once", "status"] {
        let output = ends(78, &[command], &[]);
        for (name, flag, variable) in
            [("database_url", "--database-url", "DATABASE_URL"), ("amqp_url", "--amqp-url", "AMQP_URL")]
        {
            let expected = format!(
                "outboxd: {name}: missing; give it as {flag} or {variable}, or in the configuration file"
            );
            assert!(output.stderr.lines().any(|line| line.starts_with(&expected)), "{output:?}");
        }
    }
    // Who only writes needs no broker.
    let output = ends(78, &["enqueue", "x"], &[]);
    assert!(output.stderr.contains("database_url") && !output.stderr.contains("amqp_url"), "{output:?}");
}

#[test]
fn a_configuration_file_that_cannot_be_read_is_named() {
    let output = ends(78, &["once", "--config", "/nonexistent/outboxd.toml"], &URLS);
    assert!(output.stderr.contains("/nonexistent/outboxd.toml"), "{output:?}");
    assert!(output.stderr.contains("No such file"), "{output:?}");
}

/// The parser of the file shows the line that it stumbles over, which may be the one with the password.
#[test]
fn no_problem_with_a_secret_tells_it() {
    let (database, broker) = (no_database(), no_broker());
    let files = [
        format!("amqp_url = \"{broker}"),
        format!("amqp_url = {broker}"),
        format!("database_url = \"{database}\"\ndatabase_url = \"{database}\""),
        format!("databse_url = \"{database}\""),
        format!("table = \"{database}\""),
        format!("interval = \"{broker}\""),
        format!("amqp_url = [\"{broker}\"]"),
        format!("[[route]]\nevent_type = \"x\"\nexchange = \"x\"\nunroutable = \"{broker}\""),
        format!("database_url = \"host=127.0.0.1 password={PASSWORD} port=x\""),
        format!("amqp_url = \"amqp://app:{PASSWORD}@host:port/\""),
        format!("database_url = \"postgres://app:{PASSWORD}@host:port/db\""),
        format!("database_url = \"postgres://app:{PASSWORD}/@host/db\""),
        format!("amqp_url = \"http://app:{PASSWORD}@host/\""),
    ];
    for toml in files {
        let world = World::new();
        world.configure(&toml);
        let output = ends(78, &["once", "-vv", "--config", world.config_path()], &[]);
        assert!(output.stderr.starts_with("outboxd: "), "{toml}: {output:?}");
    }
    for (name, value) in [
        ("DATABASE_URL", format!("postgres://app:{PASSWORD}@host:port/db")),
        ("AMQP_URL", format!("amqp:/app:{PASSWORD}@host")),
        ("OUTBOXD_TABLE", database.clone()),
        ("OUTBOXD_INTERVAL", broker.clone()),
        ("OUTBOXD_DATABASE_URL", database.clone()),
        ("OUTBOXD_AMQP_URL", broker.clone()),
    ] {
        ends(78, &["run"], &[(name, &value)]);
        let flag = name.trim_start_matches("OUTBOXD_").to_lowercase().replace('_', "-");
        ends(78, &["run", &format!("--{flag}={value}")], &[]);
    }
}

/// In the place of a name it would be shown wherever the name is: in errors, on the page, in what a broker answers.
#[test]
fn a_secret_in_the_place_of_any_other_setting_is_refused_and_hidden() {
    let secret = format!("postgres://app:{PASSWORD}@db/app");
    let (database, broker) = (no_database(), no_broker());
    let urls = [("DATABASE_URL", database.as_str()), ("AMQP_URL", &broker)];
    let others = outboxd::config::SETTINGS.iter().filter(|it| !it.secret);
    for setting in others {
        for command in ["run", "check"] {
            let (flag, variable) = (format!("{}={secret}", setting.flag()), setting.variable());
            let by_flag = ends(78, &[command, &flag], &urls);
            let by_variable = ends(78, &[command], &[&urls[..], &[(&variable, &secret)]].concat());
            for output in [by_flag, by_variable] {
                assert!(format!("{output:?}").contains("(hidden)"), "{}: {output:?}", setting.name);
            }
        }
    }
    for key in ["event_type", "exchange", "routing_key", "content_type"] {
        let mut keys = vec![("event_type", "x"), ("exchange", "x")];
        keys.retain(|(name, _)| *name != key);
        keys.push((key, &secret));
        let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name} = \"{value}\"")).collect();
        let world = World::new();
        world.configure(&format!("[[route]]\n{}", keys.join("\n")));
        let output = ends(78, &["check", "--config", world.config_path()], &urls);
        assert!(output.stdout.contains("(hidden)"), "{key}: {output:?}");
    }
}
