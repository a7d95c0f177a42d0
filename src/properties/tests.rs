//! The properties, of what proptest makes up. `fuzz/` has them of what libFuzzer finds.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::config::{ROUTE_KEYS, SETTINGS, parse_duration};

/// How long the client writes a table.
fn written(table: &FieldTable) -> usize {
    let mut buffer = vec![0; 1 << 20];
    amq_protocol_types::generation::gen_field_table((&mut buffer, 0), table).unwrap().1
}

/// Words that mean something where one of them is to be found, among others.
fn text(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    vec(prop_oneof![3 => proptest::sample::select(words).prop_map(String::from), 1 => ".{0,3}"], 0..12)
        .prop_map(|words| words.concat())
}

/// A line of a file: a setting with a value that may be right.
fn line() -> impl Strategy<Value = String> {
    let names: Vec<&str> =
        SETTINGS.iter().map(|it| it.name).chain(ROUTE_KEYS.iter().map(|it| it.name)).collect();
    let values =
        ["30s", "0", "1", "none", "off", "500ms", "64KiB", "fail", "order.*", "{event_type}", "é", "-1"];
    let value = prop_oneof![
        proptest::sample::select(values.to_vec()).prop_map(|it| format!("{it:?}")),
        any::<i64>().prop_map(|it| it.to_string()),
        "[a-z0-9 \"'{}\\[\\].]{0,8}",
    ];
    prop_oneof![
        8 => (proptest::sample::select(names), value).prop_map(|(name, value)| format!("{name} = {value}")),
        1 => Just("[[route]]".to_owned()),
        1 => ".{0,20}",
    ]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((".{0,20}", inner), 0..6).prop_map(|it| Value::Object(it.into_iter().collect())),
        ]
    })
}

proptest! {
    // What fails is shown, and belongs into a test of its own.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn no_file_makes_it_panic_or_tell_a_password(lines in vec(line(), 0..12)) {
        config_file(&lines.join("\n"));
    }

    #[test]
    fn no_environment_does(pairs in vec(("(OUTBOXD_[A-Z_]{1,12}|AMQP_URL|PG[A-Z]{1,8}|.{0,8})", ".{0,20}"), 0..8)) {
        environment(&pairs);
    }

    #[test]
    fn no_url_of_the_broker_does(text in text(&[
        "amqp://", "amqps://", "u", ":", "hunter2", "@", "h", "/", "%2F", "%ff", "?", "heartbeat=", "cacertfile=",
        "auth_mechanism=external", "&", "#", "[::1]", "5672", "99999",
    ])) {
        amqp_url(&text);
    }

    #[test]
    fn no_url_of_the_database_does(text in text(&[
        "postgres://", "u", ":", "hunter2", "@", "h", ",", "/", "d", "?", "sslmode=", "require", "verify-full", "&",
        "password=hunter2", " ", "host=", "port=", "'", "\\", "%", "options=",
    ])) {
        database_url(&text);
    }

    #[test]
    fn a_url_is_read_as_it_was_written(
        user in ".{0,12}", password in ".{0,12}", port in 1_u16.., vhost in ".{0,12}", heartbeat_s: u16,
    ) {
        amqp_url_of_parts(&user, &password, port, &vhost, heartbeat_s);
    }

    #[test]
    fn patterns_match_as_they_read(wanted in "[ab*é]{0,8}", event_type in "[abé]{0,10}") {
        pattern(&wanted, &event_type);
    }

    #[test]
    fn templates_make_what_they_say(
        text in text(&["{event_type}", "{ordering_key}", "{", "}", ".", "é"]),
        event_type in "[a-z{}.]{0,8}",
        key in option::of(".{0,8}"),
    ) {
        template(&text, &event_type, key.as_deref());
    }

    #[test]
    fn headers_are_as_long_as_reckoned(value in json(), raw in "[{}\\[\\]\":,a0. \\\\]{0,20}") {
        headers(&value.to_string(), written);
        headers(&serde_json::json!({"a": value, "CC": ["q"]}).to_string(), written);
        headers(&raw, written);
    }

    #[test]
    fn each_message_has_one_verdict(steps in vec((0_u8..7, 0_u8..24), 0..120)) {
        ledger(steps.into_iter().map(|(kind, tag)| Step::of(kind, tag)));
    }

    #[test]
    fn durations_are_read_as_they_are_written(ms in 0_u64..100_000_000_000) {
        let duration = std::time::Duration::from_millis(ms);
        let text = humantime::format_duration(duration).to_string();
        prop_assert_eq!(parse_duration(&text), Some(duration), "{}", text);
    }
}
