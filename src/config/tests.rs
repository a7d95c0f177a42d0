//! How values are read, resolved and refused, over all sources.

use super::*;
use crate::route::Template;

const DB: &str = "postgres://u:hunter2@db/app";
const MQ: &str = "amqp://u:hunter2@mq/%2f";

fn file(line: usize) -> Origin {
    Origin::File { path: "o.toml".into(), line: Some(line) }
}

fn given(origin: &Origin, name: &str, value: &str) -> Given {
    Given { name: name.into(), value: value.into(), origin: origin.clone() }
}

/// Both URLs, and `more`.
fn with(more: &[(Origin, &str, &str)]) -> Vec<Given> {
    let urls = [(Origin::Environment, "DATABASE_URL", DB), (Origin::Environment, "AMQP_URL", MQ)];
    urls.iter().chain(more).map(|(origin, name, value)| given(origin, name, value)).collect()
}

fn read(more: &[(Origin, &str, &str)]) -> Result<Config, String> {
    Config::from_given(&with(more), &[]).map_err(|problems| problems.to_string())
}

fn problems(more: &[(Origin, &str, &str)]) -> String {
    read(more).map(|_| ()).unwrap_err()
}

#[test]
fn the_defaults_are_those_of_the_table() {
    let config = Config::new(DB, MQ).unwrap();
    assert_eq!((config.database.url.expose(), config.broker.url.expose()), (DB, MQ));
    let values = [
        ("table", config.database.table.to_string()),
        ("open_timeout", format!("{:?}", config.database.open_timeout)),
        ("open_timeout", format!("{:?}", config.broker.open_timeout)),
        ("claim_max_idle", format!("{:?}", config.database.claim_max_idle)),
        ("interval", format!("{:?}", config.interval)),
        ("grace", format!("{:?}", config.grace)),
        ("min_age", format!("{:?}", config.claim.min_age)),
        ("batch_rows", config.claim.batch_rows.to_string()),
        ("batch_bytes", format!("{}MiB", config.claim.batch_bytes >> 20)),
        ("payload_max", format!("{}MiB", config.claim.payload_max >> 20)),
        ("payload_max", format!("{}MiB", config.routing.payload_max >> 20)),
        ("workers", config.broker.workers.to_string()),
        ("window", config.broker.window.to_string()),
        ("window_bytes", format!("{}MiB", config.broker.window_bytes >> 20)),
        ("publish_timeout", format!("{:?}", config.broker.publish_timeout)),
        ("exchange", config.routing.fallback.exchange.clone()),
        ("max_failures", config.claim.max_failures.to_string()),
        ("max_failures", config.retry.max_failures.to_string()),
        ("backoff_base", format!("{:?}", config.retry.backoff_base)),
    ];
    for (name, value) in values {
        assert_eq!(Setting::named(name).unwrap().default, Some(value.as_str()), "{name}");
    }
    assert_eq!(config.retry.backoff_max, Duration::from_secs(600));
    assert_eq!((config.claim.max_age, config.retention), (None, None));
    assert_eq!(config.routing.routes, []);
    assert_eq!(config.routing.fallback.routing_key, Template::parse("{event_type}").unwrap());
    assert_eq!(config.routing.fallback.content_type, "application/json");
    assert_eq!(config.routing.fallback.unroutable, Unroutable::Fail);
}

#[test]
fn the_limits_are_those_of_the_table() {
    // name, just below, lowest, highest, just above
    let cases = [
        ("interval", "9ms", "10ms", "24h", "86400001ms"),
        ("min_age", "-1s", "0s", "30d", "2592000001ms"),
        ("max_age", "999ms", "1s", "3650d", "3651d"),
        ("retention", "999ms", "1s", "3650d", "3651d"),
        ("grace", "999ms", "1s", "10m", "600001ms"),
        ("open_timeout", "999ms", "1s", "5m", "300001ms"),
        ("claim_max_idle", "4999ms", "5s", "1h", "3600001ms"),
        ("publish_timeout", "999ms", "1s", "10m", "600001ms"),
        ("backoff_base", "999us", "1ms", "24h", "86400001ms"),
        ("backoff_max", "999us", "1ms", "24h", "86400001ms"),
        ("batch_rows", "0", "1", "10000", "10001"),
        ("batch_bytes", "1023B", "1KiB", "256MiB", "268435457B"),
        ("workers", "0", "1", "32", "33"),
        ("window", "0", "1", "10000", "10001"),
        ("window_bytes", "1023B", "1KiB", "64MiB", "67108865B"),
        ("payload_max", "1023B", "1KiB", "512MiB", "536870913B"),
        ("max_failures", "0", "1", "1000", "1001"),
    ];
    for (name, below, lowest, highest, above) in cases {
        let setting = Setting::named(name).unwrap();
        assert!(setting.form.contains(&format!("from {lowest} to {highest}")), "{name}: {}", setting.form);
        // Out of the way of the relations between settings.
        let aside =
            [(file(1), "min_age", "0s"), (file(2), "backoff_base", "1ms"), (file(3), "backoff_max", "24h")];
        for (value, fits) in [(below, false), (lowest, true), (highest, true), (above, false)] {
            let more = [&aside[..], &[(Origin::Code, name, value)]].concat();
            let expected = format!("{name} {value:?}: expected {}", setting.form);
            assert_eq!(read(&more).map(|_| ()), if fits { Ok(()) } else { Err(expected) });
        }
    }
    for setting in SETTINGS.iter().filter(|setting| setting.form.contains(" from ")) {
        assert!(cases.iter().any(|case| case.0 == setting.name), "{} has limits but no case", setting.name);
    }
}

#[test]
fn the_nearest_origin_wins_and_only_it_is_read() {
    let all = [
        (Origin::Code, "batch_rows", "4"),
        (Origin::Flag, "--batch-rows", "3"),
        (Origin::Environment, "OUTBOXD_BATCH_ROWS", "2"),
        (file(1), "batch_rows", "1"),
    ];
    for (from, expected) in [(0, 4), (1, 3), (2, 2), (3, 1), (4, 500)] {
        let mut some = all[from..].to_vec();
        assert_eq!(read(&some).unwrap().claim.batch_rows, expected);
        some.reverse();
        assert_eq!(read(&some).unwrap().claim.batch_rows, expected);
    }
    let hidden = [(Origin::Flag, "--batch-rows", "3"), (file(1), "batch_rows", "many")];
    assert_eq!(read(&hidden).unwrap().claim.batch_rows, 3);
    let twice = [(Origin::Flag, "--batch-rows", "3"), (Origin::Flag, "--batch-rows", "4")];
    assert_eq!(read(&twice).unwrap().claim.batch_rows, 4);
}

#[test]
fn problems_name_the_place_the_value_and_the_form() {
    let rows = "expected a whole number from 1 to 10000";
    let template = "(accepted: text in which {event_type} and {ordering_key} stand for the event's own)";
    let cases = [
        (Origin::Flag, "--batch-rows", "0", format!("--batch-rows \"0\": {rows}")),
        (Origin::Environment, "OUTBOXD_BATCH_ROWS", "", format!("OUTBOXD_BATCH_ROWS \"\": {rows}")),
        (file(7), "batch_rows", "a\nb", format!("batch_rows in o.toml line 7 \"a\\nb\": {rows}")),
        (Origin::Code, "batch_rows", MQ, format!("batch_rows (hidden): {rows}")),
        (Origin::Flag, "--routing-key", "{", format!("--routing-key \"{{\": a {{ without its }} {template}")),
        // Held by two parts, reported once.
        (
            Origin::Flag,
            "--max-failures",
            "-1",
            "--max-failures \"-1\": expected a whole number from 1 to 1000".into(),
        ),
        (Origin::Flag, "--batch-row", "5", "--batch-row: unknown; did you mean --batch-rows?".into()),
        (Origin::Flag, "batch_rows", "5", "batch_rows: unknown; did you mean --batch-rows?".into()),
        (
            Origin::Environment,
            "OUTBOXD_DATABASE_URL",
            DB,
            "OUTBOXD_DATABASE_URL: unknown; did you mean DATABASE_URL?".into(),
        ),
        (file(2), "batch-rows", "5", "batch-rows in o.toml line 2: unknown; did you mean batch_rows?".into()),
        (file(2), "a\nb", "5", "a\\nb in o.toml line 2: unknown".into()),
    ];
    for (origin, name, value, expected) in cases {
        assert_eq!(problems(&[(origin, name, value)]), expected);
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let many = [
        (Origin::Flag, "--workers", "33"),
        (Origin::Environment, "OUTBOXD_WINDOW", "none"),
        (file(3), "table", "a.b.c"),
        (file(4), "tabel", "x"),
    ];
    let expected = "tabel in o.toml line 4: unknown; did you mean table?\n\
                    table in o.toml line 3 \"a.b.c\": expected [schema.]table, each 1 to 63 bytes, in double quotes where \
                    it holds a dot or a quote\n\
                    --workers \"33\": expected a whole number from 1 to 32\n\
                    OUTBOXD_WINDOW \"none\": expected a whole number from 1 to 10000";
    assert_eq!(problems(&many), expected);
}

#[test]
fn settings_must_agree() {
    let cases = [
        (
            "--max-age",
            "31s",
            "--min-age",
            "31s",
            Some("--max-age \"31s\": must be more than --min-age \"31s\""),
        ),
        ("--max-age", "32s", "--min-age", "31s", None),
        (
            "--max-age",
            "30s",
            "--grace",
            "10s",
            Some("--max-age \"30s\": must be more than min_age \"30s\" (the default)"),
        ),
        ("--max-age", "none", "--min-age", "30d", None),
        (
            "--backoff-base",
            "2m",
            "--backoff-max",
            "1m",
            Some("--backoff-base \"2m\": must be at most --backoff-max \"1m\""),
        ),
        ("--backoff-base", "1m", "--backoff-max", "1m", None),
        (
            "--backoff-max",
            "1s",
            "--grace",
            "10s",
            Some("backoff_base \"30s\" (the default): must be at most --backoff-max \"1s\""),
        ),
    ];
    for (name, value, other, other_value, expected) in cases {
        let result = read(&[(Origin::Flag, name, value), (Origin::Flag, other, other_value)]);
        assert_eq!(result.map(|_| ()).err().as_deref(), expected);
    }
}

#[test]
fn who_listens_sends_at_once_unless_told_otherwise() {
    let age = |more: &[(Origin, &str, &str)]| read(more).unwrap().claim.min_age.as_secs();
    let listen = (Origin::Flag, "--listen", "on");
    assert_eq!(age(std::slice::from_ref(&listen)), 0);
    assert_eq!(age(&[(Origin::Flag, "--listen", "off")]), 30);
    assert_eq!(age(&[listen.clone(), (file(1), "min_age", "5s")]), 5);
    let config = read(std::slice::from_ref(&listen)).unwrap();
    assert!(config.listen && config.listen_url.is_none());
    let direct = "postgres://u:hunter2@direct/app";
    let config = read(&[listen.clone(), (file(2), "listen_url", direct)]).unwrap();
    assert_eq!(config.listen_url.map(|it| it.expose().to_owned()).as_deref(), Some(direct));
    let (as_toml_has_it, _) = parse_toml("listen = true", "o.toml").unwrap();
    assert_eq!(as_toml_has_it[0].value, "true");
    assert_eq!(age(&[(file(1), "listen", "true")]), 0);
    assert_eq!(age(&[(file(1), "listen", "false")]), 30);
    let wrong =
        problems(&[(Origin::Flag, "--listen", "yes"), (file(3), "listen_url", "mysql://u:hunter2@h")]);
    assert!(wrong.contains("--listen \"yes\": expected on or off"), "{wrong}");
    assert!(wrong.contains("listen_url in o.toml line 3") && !wrong.contains("hunter2"), "{wrong}");
    let code = Config::new(DB, MQ).unwrap().listening();
    assert!(code.listen && code.claim.min_age.is_zero());
}

#[test]
fn urls_are_needed_checked_and_never_shown() {
    let missing = "database_url: missing; give it as --database-url or DATABASE_URL, or in the configuration file, \
                   or name the server with PGHOST\n\
                   amqp_url: missing; give it as --amqp-url or AMQP_URL, or in the configuration file";
    let nothing = Config::from_given(&[], &[]).unwrap_err();
    assert_eq!(nothing.to_string(), missing);
    assert!(nothing.0.iter().all(Problem::is_missing));
    assert_eq!(Database::from_given(&[]).unwrap_err().0.len(), 1);

    let database = [given(&Origin::Environment, "DATABASE_URL", DB)];
    assert_eq!(Database::from_given(&database).unwrap().url.expose(), DB);

    for (database, broker) in [(MQ, DB), ("", " "), ("hunter2", "hunter2")] {
        let problems = Config::new(database, broker).unwrap_err();
        assert_eq!(problems.0.len(), 2);
        assert!(!problems.0.iter().any(Problem::is_missing));
        assert!(!problems.to_string().contains("hunter2"), "{problems}");
    }
    assert!(Config::from_given(&with(&[(Origin::Flag, "--amqp-url", DB)]), &[]).is_err());

    let config = Config::new(DB, MQ).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(format!("{} {:?}", config.broker.url, config.database.url), "(hidden) (hidden)");
}

#[test]
fn commands_without_a_broker_look_at_their_own_settings_only() {
    let more = [(Origin::Environment, "OUTBOXD_WORKERS", "none"), (Origin::Flag, "--table", "\"Out.box\"")];
    assert_eq!(Database::from_given(&with(&more)).unwrap().table.name, "Out.box");
    assert_eq!(TableName::from_given(&[]).unwrap().to_string(), "event_outbox");
    assert_eq!(TableName::from_given(&with(&more)).unwrap().to_string(), "\"Out.box\"");
    let unknown = with(&[(Origin::Environment, "OUTBOXD_WORKER", "2")]);
    assert_eq!(
        Database::from_given(&unknown).unwrap_err().to_string(),
        "OUTBOXD_WORKER: unknown; did you mean OUTBOXD_WORKERS?"
    );
}

#[test]
fn commands_by_hand_need_no_broker() {
    let given = |more: &[(Origin, &str, &str)]| {
        let all: Vec<Given> = more.iter().map(|(origin, name, value)| given(origin, name, value)).collect();
        Operator::from_given(&all, &[]).map_err(|problems| problems.to_string())
    };
    let url = (Origin::Flag, "--database-url", DB);
    let operator = given(&[url.clone(), (Origin::Flag, "--retention", "7d")]).unwrap();
    assert_eq!(operator.retention, Some(Duration::from_secs(7 * 24 * 60 * 60)));
    assert_eq!((operator.claim.min_age, operator.claim.max_failures), (Duration::from_secs(30), 3));
    let refused = given(&[url, (Origin::Flag, "--retention", "0s")]).unwrap_err();
    assert!(refused.starts_with("--retention \"0s\": expected none, or a duration from 1s"), "{refused}");
    assert!(given(&[]).unwrap_err().contains("database_url"));
}

#[test]
fn routes_are_read_key_by_key() {
    let text = "[[route]]\nevent_type = 'order.*'\nexchange = 'orders'\n\n[[route]]\nevent_type = 'ping'\nexchange = ''\n\
                routing_key = '{ordering_key}.pings'\ncontent_type = 'text/plain'\nunroutable = 'accept'\n";
    let (_, routes) = parse_toml(text, "o.toml").unwrap();
    let config = Config::from_given(&with(&[]), &routes).unwrap();
    let destination = |exchange: &str, key: &str, content_type: &str, unroutable| Destination {
        exchange: exchange.into(),
        routing_key: Template::parse(key).unwrap(),
        content_type: content_type.into(),
        unroutable,
    };
    let expected = [
        Route {
            event_type: Pattern::parse("order.*").unwrap(),
            destination: destination("orders", "{event_type}", "application/json", Unroutable::Fail),
        },
        Route {
            event_type: Pattern::parse("ping").unwrap(),
            destination: destination("", "{ordering_key}.pings", "text/plain", Unroutable::Accept),
        },
    ];
    assert_eq!(config.routing.routes, expected);
}

#[test]
fn problems_of_routes_name_the_route() {
    let text = "[[route]]\nevent_type = 'x'\nexchange = 'y'\n[[route]]\nevent_type = ''\nrouting_key = '{key}'\n\
                content_type = ''\nunroutable = true\nevent_typ = 'z'\n[[route]]\n";
    let (_, routes) = parse_toml(text, "o.toml").unwrap();
    let problems = Config::from_given(&with(&[]), &routes).unwrap_err();
    let expected = "event_typ of route 2 in o.toml line 9: unknown; did you mean event_type?\n\
        event_type of route 2 in o.toml line 5 \"\": expected an event type, where * stands for any run of characters\n\
        exchange of route 2 in o.toml line 4: missing; expected the name of an exchange, at most 200 bytes\n\
        routing_key of route 2 in o.toml line 6 \"{key}\": unknown placeholder {key}: expected {event_type} or \
        {ordering_key} (accepted: text in which {event_type} and {ordering_key} stand for the event's own)\n\
        content_type of route 2 in o.toml line 7 \"\": expected a media type of 1 to 255 bytes, such as application/json\n\
        unroutable of route 2 in o.toml line 8 \"true\": expected fail or accept\n\
        event_type of route 3 in o.toml line 10: missing; expected an event type, where * stands for any run of characters\n\
        exchange of route 3 in o.toml line 10: missing; expected the name of an exchange, at most 200 bytes";
    assert_eq!(problems.to_string(), expected);
}

#[test]
fn every_setting_has_its_names() {
    let cases = [
        ("batch_rows", "--batch-rows", "OUTBOXD_BATCH_ROWS"),
        ("table", "--table", "OUTBOXD_TABLE"),
        ("database_url", "--database-url", "DATABASE_URL"),
        ("amqp_url", "--amqp-url", "AMQP_URL"),
    ];
    for (name, flag, variable) in cases {
        let setting = Setting::named(name).unwrap();
        assert_eq!((setting.flag().as_str(), setting.variable().as_str()), (flag, variable));
    }
    for (index, setting) in SETTINGS.iter().enumerate() {
        assert!(SETTINGS[..index].iter().all(|other| other.name != setting.name), "{} twice", setting.name);
    }
}
