//! The function as an application in another language calls it.

use serde_json::json;

use super::rows;
use crate::world::World;

#[test]
fn all_arguments_have_names_and_all_but_two_may_be_left_out() {
    let mut world = World::new();
    let sql = "
        begin;
        select outbox_append('order.paid', '{\"order\": 7}');
        select outbox_append('order.paid', '{}', 'order-7', '{\"tenant\": \"acme\"}', '1 hour');
        select outbox_append(
            event_type => 'order.paid', payload => '{}', available_in => '5 minutes', exchange => 'x',
            routing_key => 'r', event_id => '01JD5Z6Z3Y1Q2W3E4R5T6Y7V8W'
        );
        commit";
    world.client.batch_execute(sql).unwrap();
    let columns = "event_type, payload, status, fail_count, ordering_key, headers, expired_at - created_at = '1 hour', \
        available_at - created_at = '5 minutes', exchange, routing_key";
    let expected = [
        json!(["order.paid", "{\"order\": 7}", "WAITING", 0, null, null, null, null, null, null]),
        json!(["order.paid", "{}", "WAITING", 0, "order-7", {"tenant": "acme"}, true, null, null, null]),
        json!(["order.paid", "{}", "WAITING", 0, null, null, null, true, "x", "r"]),
    ];
    assert_eq!(rows(&mut world.client, columns), expected);
    let given = "select event_id from event_outbox where exchange = 'x'";
    let given: String = world.client.query_one(given, &[]).unwrap().get(0);
    assert_eq!(given, "01JD5Z6Z3Y1Q2W3E4R5T6Y7V8W");
}

#[test]
fn times_are_those_of_the_call_and_not_of_the_transaction() {
    let mut world = World::new();
    let mut tx = world.client.transaction().unwrap();
    tx.execute("select pg_sleep(0.05)", &[]).unwrap();
    tx.execute("select outbox_append('t', '{}', expires_in => '1 s')", &[]).unwrap();
    let sql = "select created_at - now() >= '50 ms' and created_at <= clock_timestamp() from event_outbox";
    assert!(tx.query_one(sql, &[]).unwrap().get::<_, bool>(0));
}

#[test]
fn a_rollback_leaves_nothing() {
    let mut world = World::new();
    world.client.batch_execute("begin; select outbox_append('t', '{}'); rollback").unwrap();
    assert_eq!(rows(&mut world.client, "id").len(), 0);
}
