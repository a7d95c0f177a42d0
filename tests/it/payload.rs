//! The payload arrives as the bytes that are stored, whatever they are and whatever type their column has.

use crate::world::World;

/// How much of a body fits into one frame: RabbitMQ's 131,072 bytes less the frame's own eight.
const FRAME_BODY: usize = 131_064;

/// JSON that any reading and writing again would change: emoji, an escape that needs none, digits beyond a double,
/// odd whitespace, keys out of order and twice, a slash, a number's trailing zeros.
const DELICATE: &str = "{ \"z\":\t12345678901234567890123 ,\r\n \"a\" : \"😀 \\u00e9 é\", \"z\":1.500,\
    \"e\":1E+2, \"/\":\"\\/\", \"\":[ ] , \"k\":-0 }\n";

/// Changes the payload column's type.
fn alter_payload(world: &mut World, kind: &str, using: &str) {
    let sql = format!("alter table event_outbox alter column payload type {kind} using {using}");
    world.client.batch_execute(&sql).unwrap();
}

/// Writes a due event whose payload is given as SQL with the bytes as $1, and returns its row's id.
fn insert_bytes(world: &mut World, queue: &str, payload: &str, bytes: &[u8]) -> i64 {
    let sql = format!(
        "insert into event_outbox (event_id, event_type, payload, created_at) \
         values ($2, $3, {payload}, '2020-01-01') returning id"
    );
    let event_id = ulid::Ulid::generate().to_string();
    world.client.query_one(&sql, &[&bytes, &event_id, &queue]).unwrap().get(0)
}

/// Bytes that differ everywhere, so that a piece that is missing, doubled or moved shows.
fn text_of(length: usize) -> String {
    let mut text: String = (0..length / 8 + 1).map(|n| format!("{n:07} ")).collect();
    text.truncate(length);
    text
}

#[test]
fn text_arrives_byte_for_byte() {
    let mut world = World::new();
    let queue = world.queue();
    let payloads =
        [DELICATE, "not JSON at all", "{\"cut", "\u{feff}{}", " ", "\u{10ffff}\u{1}", "'; drop table"];
    for payload in payloads {
        world.insert(&queue, payload);
    }
    world.once(&["--workers", "1"], 0);
    let arrived = world.broker.drain_ready(&queue);
    let arrived: Vec<&str> = arrived.iter().map(|message| message.text()).collect();
    assert_eq!(arrived, payloads);
}

#[test]
fn payloads_of_every_size_around_a_frame_arrive_whole() {
    let mut world = World::new();
    let queue = world.queue();
    let sizes = [
        0,
        1,
        FRAME_BODY - 1,
        FRAME_BODY,
        FRAME_BODY + 1,
        2 * FRAME_BODY,
        2 * FRAME_BODY + 1,
        5 * 1024 * 1024,
    ];
    for size in sizes {
        world.insert(&queue, &text_of(size));
    }
    world.once(&["--workers", "1"], 0);
    let arrived = world.broker.drain_ready(&queue);
    let lengths: Vec<usize> = arrived.iter().map(|message| message.body.len()).collect();
    assert_eq!(lengths, sizes);
    for message in &arrived {
        let whole = message.text() == text_of(message.body.len());
        assert!(whole, "the payload of {} bytes arrived changed", message.body.len());
    }
    assert_eq!(world.count("PUBLISHED"), 8);
}

#[test]
fn a_json_column_is_sent_as_it_was_written() {
    let mut world = World::new();
    alter_payload(&mut world, "json", "payload::json");
    let queue = world.queue();
    insert_bytes(&mut world, &queue, "convert_from($1, 'UTF8')::json", DELICATE.as_bytes());
    world.once(&[], 0);
    let arrived = world.broker.drain_ready(&queue);
    let arrived: Vec<&str> = arrived.iter().map(|message| message.text()).collect();
    assert_eq!(arrived, [DELICATE]);
}

#[test]
fn a_jsonb_column_is_sent_as_postgresql_writes_it() {
    let mut world = World::new();
    alter_payload(&mut world, "jsonb", "payload::jsonb");
    let queue = world.queue();
    let id = insert_bytes(&mut world, &queue, "convert_from($1, 'UTF8')::jsonb", DELICATE.as_bytes());
    world.once(&[], 0);
    let sql = "select payload::text from event_outbox where id = $1";
    let stored: String = world.client.query_one(sql, &[&id]).unwrap().get(0);
    let arrived = world.broker.drain_ready(&queue);
    let arrived: Vec<&str> = arrived.iter().map(|message| message.text()).collect();
    assert_eq!(arrived, [stored.as_str()]);
    assert!(stored.contains("😀"), "{stored}");
}

#[test]
fn a_bytea_column_may_hold_any_bytes() {
    let mut world = World::new();
    alter_payload(&mut world, "bytea", "convert_to(payload, 'UTF8')");
    let queue = world.queue();
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads: [&[u8]; 4] = [&every_byte, b"\0", b"\xff\xfe\xc3", b""];
    for payload in payloads {
        insert_bytes(&mut world, &queue, "$1::bytea", payload);
    }
    world.once(&["--workers", "1"], 0);
    let arrived = world.broker.drain_ready(&queue);
    let arrived: Vec<&[u8]> = arrived.iter().map(|message| message.body.as_slice()).collect();
    assert_eq!(arrived, payloads);
}

#[test]
fn a_varchar_column_is_sent_as_it_was_written() {
    let mut world = World::new();
    alter_payload(&mut world, "varchar(4000)", "payload");
    let queue = world.queue();
    world.insert(&queue, DELICATE);
    world.once(&[], 0);
    let arrived = world.broker.drain_ready(&queue);
    let arrived: Vec<&str> = arrived.iter().map(|message| message.text()).collect();
    assert_eq!(arrived, [DELICATE]);
}
