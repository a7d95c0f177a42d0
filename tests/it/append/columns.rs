//! Tables whose columns have other types, and tables of other names.

use outboxd::config::TableName;
use outboxd::{NewEvent, Writer, append};
use serde_json::json;

use super::{append_one, rows};
use crate::world::World;

const PAYLOAD: &str = "{ \"é\": [1.50, \"\\\\\"] }";

#[test]
fn every_type_of_payload_is_written_and_relayed() {
    for (kind, using) in [
        ("text", "payload"),
        ("varchar(200)", "payload"),
        ("json", "payload::json"),
        ("jsonb", "payload::jsonb"),
        ("bytea", "convert_to(payload, 'UTF8')"),
    ] {
        let mut world = World::new();
        let queue = world.queue();
        let sql = format!("alter table event_outbox alter column payload type {kind} using {using}");
        world.client.batch_execute(&sql).unwrap();
        assert_eq!(world.outboxd(&["init"]).code, Some(0));
        append_one(&mut world.client, &NewEvent::new(&queue).payload(PAYLOAD));
        world.client.execute("select outbox_append($1, $2)", &[&queue, &PAYLOAD]).unwrap();
        world.once(&["--min-age", "0s"], 0);
        let expected = if kind == "jsonb" { "{\"é\": [1.50, \"\\\\\"]}" } else { PAYLOAD };
        let arrived = world.broker.drain_ready(&queue);
        let arrived: Vec<_> = arrived.iter().map(|message| message.text()).collect();
        assert_eq!(arrived, [expected, expected], "{kind}");
    }
}

#[test]
fn a_column_that_was_changed_since_init_says_what_to_do() {
    let mut world = World::new();
    let sql = "alter table event_outbox alter column payload type jsonb using payload::jsonb";
    world.client.batch_execute(sql).unwrap();
    let mut tx = world.client.transaction().unwrap();
    let refused = append(&mut tx, &NewEvent::new("t")).unwrap_err();
    assert!(refused.to_string().ends_with("bring the table up to date with: outboxd init"), "{refused}");
}

#[test]
fn enums_times_without_zone_and_json_headers_are_fine() {
    let mut world = World::new();
    let sql = "
        create type state as enum ('WAITING', 'FAILED', 'PUBLISHED', 'DEAD', 'EXPIRED', 'SKIPPED');
        create type kind as enum ('order.paid', 'order.sent');
        drop table event_outbox;
        drop function outbox_append(text, text, text, jsonb, interval, interval, text, text, text);
        create table event_outbox (
            id bigserial primary key, event_id char(26) unique, event_type kind, payload text,
            status state default 'WAITING', created_at timestamp, last_retried_at timestamp,
            expired_at timestamp, fail_count smallint, headers json, available_at timestamp
        );";
    world.client.batch_execute(sql).unwrap();
    let made = world.outboxd(&["init"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let event = NewEvent::new("order.paid").header("a", 1).expires_in(std::time::Duration::from_secs(60));
    append_one(&mut world.client, &event);
    let row = rows(&mut world.client, "event_type, status, headers, expired_at - created_at = '1 minute'");
    assert_eq!(row, [json!(["order.paid", "WAITING", {"a": 1}, true])]);
    let mut tx = world.client.transaction().unwrap();
    let refused = append(&mut tx, &NewEvent::new("order.lost")).unwrap_err();
    assert_eq!(refused.kind(), outboxd::error::Kind::Invalid);
}

#[test]
fn tables_of_any_name_have_a_function_of_theirs() {
    let mut world = World::new();
    let queue = world.queue();
    let longest = "é".repeat(31);
    for (table, call) in [
        ("app.event_outbox", "app.outbox_append".to_owned()),
        ("app.events", "app.events_append".into()),
        ("\"my.app\".\"it\"\"s\"", "\"my.app\".\"it\"\"s_append\"".into()),
        ("Payload", "\"Payload_append\"".into()),
        (longest.as_str(), format!("\"{}_append\"", "é".repeat(28))),
    ] {
        let made = world.outboxd(&["init", "--table", table]);
        assert_eq!(made.code, Some(0), "{made:?}");
        let writer = Writer::new(TableName::parse(table).unwrap());
        let mut tx = world.client.transaction().unwrap();
        let mut ids = vec![writer.append(&mut tx, &NewEvent::new(&queue)).unwrap()];
        ids.extend(writer.append_all(&mut tx, &[NewEvent::new(&queue), NewEvent::new(&queue)]).unwrap());
        let sql = format!("select {call}($1, '{{}}')");
        ids.push(tx.query_one(&sql, &[&queue]).unwrap().get(0));
        tx.commit().unwrap();
        let sent = world.once(&["--table", table, "--min-age", "0s"], 0);
        assert_eq!(sent.stdout, "claimed 4: published 4\n", "{sent:?}");
        let mut arrived = world.arrivals(&queue);
        arrived.sort();
        ids.sort();
        assert_eq!(arrived, ids, "{table}");
    }
}

#[test]
fn the_search_path_finds_the_function_and_does_not_mislead_it() {
    let mut world = World::new();
    let sql = "create schema app; create schema decoy; create table decoy.event_outbox (id int)";
    world.client.batch_execute(sql).unwrap();
    world.client.batch_execute("drop table event_outbox").unwrap();
    let made = world.outboxd(&["init", "--table", "app.event_outbox"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    // Found in the path, it writes into the table of its own schema.
    world.client.batch_execute("set search_path = decoy, app").unwrap();
    append_one(&mut world.client, &NewEvent::new("t"));
    world.client.batch_execute("set search_path = ''").unwrap();
    world.client.execute("select app.outbox_append('t', '{}')", &[]).unwrap();
    let count = "select count(*) from app.event_outbox";
    assert_eq!(world.client.query_one(count, &[]).unwrap().get::<_, i64>(0), 2);
}

#[test]
fn insert_and_execute_are_all_that_a_role_needs() {
    let mut world = World::new();
    let role = crate::harness::unique("writer").replace('-', "_");
    let signature = "outbox_append(text, text, text, jsonb, interval, interval, text, text, text)";
    let sql = format!(
        "revoke execute on function {signature} from public; create role \"{role}\"; set role \"{role}\""
    );
    world.client.batch_execute(&sql).unwrap();
    let mut refusals = Vec::new();
    for right in [format!("execute on function {signature}"), "insert on event_outbox".into()] {
        let mut tx = world.client.transaction().unwrap();
        refusals.push(append(&mut tx, &NewEvent::new("t")).unwrap_err().to_string());
        drop(tx);
        let sql = format!("reset role; grant {right} to \"{role}\"; set role \"{role}\"");
        world.client.batch_execute(&sql).unwrap();
    }
    assert!(refusals[0].contains("permission denied for function outbox_append"), "{refusals:?}");
    assert!(
        refusals.iter().all(|it| it.contains("grant the role insert on the table and execute")),
        "{refusals:?}"
    );
    assert!(refusals[1].contains("permission denied for table event_outbox"), "{refusals:?}");
    append_one(&mut world.client, &NewEvent::new("t").ordering_key("k"));
    world.client.execute("select outbox_append('t', '{}')", &[]).unwrap();
    assert!(world.client.execute("select 1 from event_outbox", &[]).is_err());
    world.client.batch_execute("reset role").unwrap();
    assert_eq!(world.count("WAITING"), 2);
    world.client.batch_execute(&format!("drop owned by \"{role}\"; drop role \"{role}\"")).unwrap();
}
