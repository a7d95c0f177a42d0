//! Rows that cannot be sent as they are: each is refused with its reason, and costs its neighbours nothing.

use std::collections::HashSet;

use crate::harness::unique;
use crate::world::{World, as_logged};

/// A row that must be refused.
struct Bad {
    name: &'static str,
    /// Further columns, and their values as SQL.
    columns: &'static str,
    values: String,
    status: &'static str,
    fail_count: i32,
    /// What `last_error` and the log say.
    reason: &'static str,
}

/// One that can never be sent: it is dead at once, without an attempt.
fn dead(name: &'static str, columns: &'static str, values: impl Into<String>, reason: &'static str) -> Bad {
    Bad { name, columns, values: values.into(), status: "DEAD", fail_count: 0, reason }
}

/// One that the configuration refuses: it is tried again, in case that changes.
fn failed(name: &'static str, columns: &'static str, values: impl Into<String>, reason: &'static str) -> Bad {
    Bad { name, columns, values: values.into(), status: "FAILED", fail_count: 1, reason }
}

/// Writes the bad rows, each between good ones, runs once, and checks each of them.
fn check(world: &mut World, queue: &str, arguments: &[&str], rows: &[Bad]) {
    let mut good = vec![world.insert(queue, "{}")];
    let mut bad = Vec::new();
    for row in rows {
        // A row gives the columns that it is about; the others get what a good event has.
        let fill = |column: &str, value: &str| {
            let given = row.columns.split(", ").any(|name| name == column);
            (!given).then(|| (column.to_owned(), value.to_owned()))
        };
        let event_id = format!("'{}'", ulid::Ulid::generate());
        let event_type = format!("'{queue}'");
        let filled = [
            fill("event_id", &event_id),
            fill("event_type", &event_type),
            fill("payload", "'{}'"),
            fill("created_at", "'2020-01-01'"),
        ];
        let (columns, values): (Vec<String>, Vec<String>) =
            filled.into_iter().flatten().chain([(row.columns.to_owned(), row.values.clone())]).unzip();
        let sql = format!(
            "insert into event_outbox ({}) values ({}) returning id",
            columns.join(", "),
            values.join(", ")
        );
        bad.push(world.client.query_one(&sql, &[]).unwrap().get::<_, i64>(0));
        good.push(world.insert(queue, "{}"));
    }
    // One worker and one batch, so that all of them share a channel.
    let output = world.once(&[&["--workers", "1"], arguments].concat(), 75);
    let (mut told, mut counted) = (HashSet::new(), 0);
    for (case, id) in rows.iter().zip(bad) {
        let (name, row) = (case.name, world.row(id));
        let found = (row.status.as_str(), row.fail_count, row.published);
        assert_eq!(found, (case.status, case.fail_count, false), "{name}: {row:?}");
        let said = row.last_error.as_deref().unwrap_or_default();
        assert!(said.contains(case.reason), "{name}: {row:?}");
        // What is too long to be sent is not shown in full either.
        let shown: String = row.event_id.chars().take(200).collect();
        let lines: Vec<&str> = output.stderr.lines().filter(|line| line.contains(&shown)).collect();
        let sql = "select left(event_type, 200) from event_outbox where id = $1";
        let event_type: String = world.client.query_one(sql, &[&id]).unwrap().get(0);
        if !told.insert((event_type.clone(), said.to_owned())) {
            assert_eq!(lines, Vec::<&str>::new(), "{name}: an earlier one stands for it");
            counted += 1;
            continue;
        }
        let [line] = lines[..] else {
            panic!("{name}: one line says it, not {lines:#?}");
        };
        assert!(line.contains(&as_logged(said)), "{name}: {line}");
        assert!(line.contains(&event_type), "{name}: {line}");
    }
    let counts = output.stderr.split(" count=").skip(1).map(|rest| rest.split(' ').next().unwrap());
    assert_eq!(counts.map(|count| count.parse::<usize>().unwrap()).sum::<usize>(), counted, "{output:?}");
    for id in &good {
        let row = world.row(*id);
        assert_eq!((row.status.as_str(), row.fail_count), ("PUBLISHED", 0), "a neighbour: {row:?}");
    }
    assert_eq!(world.arrivals(queue).len(), good.len(), "each neighbour exactly once");
    let tally = format!("claimed {}: published {}", good.len() + rows.len(), good.len());
    assert!(output.stdout.contains(&tally), "all in one go: {output:?}");
    assert!(!output.stderr.contains("lost"), "the connection lives: {output:?}");
    assert!(!output.stderr.contains("panic"), "{output:?}");
}

#[test]
fn texts_longer_than_amqp_allows_are_dead_at_once() {
    let mut world = World::new();
    let queue = world.queue();
    world.client.batch_execute("alter table event_outbox alter column event_id type text").unwrap();
    let rows = [
        dead("type", "event_type", "repeat('t', 300)", "event_type is over 255 bytes"),
        dead("type just over", "event_type", "repeat('u', 256)", "event_type is over 255 bytes"),
        dead("type of wide letters", "event_type", "repeat('é', 128)", "event_type is over 255 bytes"),
        dead("routing key", "routing_key", "repeat('k', 300)", "routing_key is over 255 bytes"),
        dead(
            "routing key of wide letters",
            "routing_key",
            "repeat('é', 150)",
            "routing_key is over 255 bytes",
        ),
        dead("exchange", "exchange", "repeat('é', 115)", "exchange is over 200 bytes"),
        dead("exchange just over", "exchange", "repeat('x', 201)", "exchange is over 200 bytes"),
        dead("event id", "event_id", "repeat('i', 300)", "event_id is over 255 bytes"),
    ];
    check(&mut world, &queue, &[], &rows);
}

#[test]
fn headers_that_no_message_can_carry_are_dead_at_once() {
    let mut world = World::new();
    let queue = world.queue();
    let object = |name: String, value: &str| format!("jsonb_build_object({name}, {value})");
    let rows = [
        dead("array", "headers", "'[1, 2]'", "headers are not a JSON object"),
        dead("number", "headers", "'7'", "headers are not a JSON object"),
        dead("string", "headers", "'\"x\"'", "headers are not a JSON object"),
        dead("true", "headers", "'true'", "headers are not a JSON object"),
        dead(
            "long name",
            "headers",
            object("repeat('n', 300)".into(), "1"),
            "a header's name is over 255 bytes",
        ),
        dead(
            "long name inside",
            "headers",
            object("'a'".into(), "jsonb_build_array(jsonb_build_object(repeat('é', 128), 1))"),
            "a header's name is over 255 bytes",
        ),
        dead("over a frame", "headers", object("'a'".into(), "repeat('v', 131072)"), "headers take"),
        dead("over all bounds", "headers", object("'a'".into(), "repeat('v', 2000000)"), "headers have 2000"),
        dead("CC that is text", "headers", r#"'{"CC": "key"}'"#, "header CC is not an array"),
        dead("BCC of numbers", "headers", r#"'{"BCC": [1]}'"#, "header BCC is not an array"),
        dead("CC too long", "headers", object("'CC'".into(), "array[repeat('k', 256)]"), "header CC"),
        dead("beyond a double", "headers", r#"'{"n": 1e400}'"#, "headers are not readable"),
        dead(
            "deep",
            "headers",
            "('{\"a\":' || repeat('[', 200) || repeat(']', 200) || '}')::jsonb",
            "headers are not readable",
        ),
    ];
    check(&mut world, &queue, &[], &rows);
}

#[test]
fn a_payload_above_payload_max_fails_and_goes_after_the_limit_is_raised() {
    let mut world = World::new();
    let queue = world.queue();
    let rows = [
        failed("just above", "payload", "repeat('p', 1025)", "payload has 1025 bytes, payload_max is 1024"),
        failed("of wide letters", "payload", "repeat('é', 513)", "payload has 1026 bytes"),
        failed("far above", "payload", "repeat('p', 20000000)", "payload has 20000000 bytes"),
    ];
    check(&mut world, &queue, &["--payload-max", "1KiB"], &rows);

    world.end_backoff();
    world.once(&["--payload-max", "2KiB"], 75);
    assert_eq!(world.arrivals(&queue).len(), 2);
    assert_eq!(world.count("FAILED"), 1);
}

#[test]
fn a_payload_of_exactly_payload_max_is_sent() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, &"p".repeat(1024));
    world.once(&["--payload-max", "1KiB"], 0);
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn an_event_without_a_value_for_its_template_fails() {
    let mut world = World::new();
    let (queue, keyed) = (world.queue(), unique("keyed"));
    world.configure(&format!(
        "[[route]]\nevent_type = \"{keyed}\"\nexchange = \"\"\nrouting_key = \"{{ordering_key}}\"\n"
    ));
    let columns = "event_type, ordering_key";
    let rows = [
        failed("no key", columns, format!("'{keyed}', null"), "needs {ordering_key} and the event has none"),
        failed("long key", columns, format!("'{keyed}', repeat('k', 256)"), "routing key of 256 bytes"),
    ];
    check(&mut world, &queue, &[], &rows);

    let id = world.insert_with(&keyed, "{}", "created_at, ordering_key", &format!("'2020-01-01', '{queue}'"));
    world.once(&[], 0);
    assert_eq!(world.arrivals(&queue), [world.row(id).event_id], "one with a value goes by it");
}

#[test]
fn a_payload_that_is_null_is_dead_at_once() {
    let mut world = World::new();
    let queue = world.queue();
    world.client.batch_execute("alter table event_outbox alter column payload drop not null").unwrap();
    check(&mut world, &queue, &[], &[dead("null", "payload", "null", "payload is null")]);
}

#[test]
fn refusals_by_the_broker_and_by_us_leave_one_line_each() {
    let mut world = World::new();
    let (queue, nowhere, missing) = (world.queue(), unique("nowhere"), unique("missing"));
    let rows = [
        failed("no queue", "event_type", format!("'{nowhere}'"), "NO_ROUTE"),
        failed("no exchange", "exchange", format!("'{missing}'"), "404"),
        dead("bad headers", "headers", "'[]'", "headers are not a JSON object"),
    ];
    check(&mut world, &queue, &[], &rows);
}

#[test]
fn the_longest_texts_that_amqp_allows_are_sent() {
    let mut world = World::new();
    let queue = world.queue();
    let exchange = format!("{:x<200}", unique("exchange-"));
    world.broker.declare_exchange(&exchange, crate::harness::ExchangeType::Fanout);
    world.broker.bind(&queue, &exchange, "");
    world.client.batch_execute("alter table event_outbox alter column event_id type text").unwrap();
    let sql = "insert into event_outbox (event_id, event_type, payload, created_at, exchange, routing_key, headers) \
         values (repeat('i', 255), repeat('t', 255), '{}', '2020-01-01', $1, repeat('k', 255), \
             jsonb_build_object(repeat('h', 255), repeat('v', 129000)))";
    world.client.execute(sql, &[&exchange]).unwrap();
    world.once(&[], 0);
    let arrived = world.broker.drain_ready(&queue);
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].id().len(), 255);
    assert_eq!(arrived[0].routing_key.len(), 255);
    assert_eq!(arrived[0].kind.as_deref().map(str::len), Some(255));
    assert!(arrived[0].headers.contains_key(&"h".repeat(255)));
}
