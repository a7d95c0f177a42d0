//! The caller's transaction in any state, and databases of any encoding.

use outboxd::error::Kind;
use outboxd::{NewEvent, append, append_all};
use postgres::{Client, IsolationLevel, NoTls};

use super::{append_one, rows};
use crate::harness::Servers;
use crate::world::{World, init};

#[test]
fn any_isolation_will_do_and_what_writes_nothing_says_so() {
    let mut world = World::new();
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable]
    {
        let mut tx = world.client.build_transaction().isolation_level(level).start().unwrap();
        append(&mut tx, &NewEvent::new("t")).unwrap();
        tx.commit().unwrap();
    }
    let mut tx = world.client.build_transaction().read_only(true).start().unwrap();
    let refused = append(&mut tx, &NewEvent::new("t")).unwrap_err().to_string();
    assert!(refused.ends_with("is the transaction read-only, or the server a standby?"), "{refused}");
    tx.rollback().unwrap();
    let mut tx = world.client.transaction().unwrap();
    assert!(tx.batch_execute("select 1/0").is_err());
    let refused = append(&mut tx, &NewEvent::new("t")).unwrap_err().to_string();
    assert!(refused.ends_with("an earlier statement of the transaction failed; roll it back"), "{refused}");
    tx.rollback().unwrap();
    assert_eq!(rows(&mut world.client, "id").len(), 3);
}

/// What is not a fault of the events costs only the savepoint around it.
#[test]
fn a_savepoint_takes_back_what_the_table_refused() {
    let mut world = World::new();
    let mut tx = world.client.transaction().unwrap();
    let id = append(&mut tx, &NewEvent::new("t")).unwrap();
    let mut inner = tx.savepoint("again").unwrap();
    let refused =
        append_all(&mut inner, &[NewEvent::new("t"), NewEvent::new("t").event_id(&id)]).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid);
    inner.rollback().unwrap();
    let second = append(&mut tx, &NewEvent::new("t")).unwrap();
    tx.commit().unwrap();
    assert_eq!(rows(&mut world.client, "event_id"), [serde_json::json!([id]), serde_json::json!([second])]);
}

#[test]
fn a_database_without_an_encoding_takes_every_text() {
    let database = Servers::shared().database();
    let ascii = format!("{}_ascii", database.name);
    let mut admin = database.connect();
    let create = format!("create database {ascii} encoding 'SQL_ASCII' locale 'C' template template0");
    admin.batch_execute(&create).unwrap();
    let url = database.url.replace(&database.name, &ascii);
    init(&url);
    let mut client = Client::connect(&url, NoTls).unwrap();
    let longest = "é".repeat(127);
    append_one(
        &mut client,
        &NewEvent::new(&longest).payload("日本").header("ü", "ß").ordering_key("é".repeat(512)),
    );
    let row = rows(&mut client, "octet_length(event_type), payload, headers");
    assert_eq!(row, [serde_json::json!([254, "日本", {"ü": "ß"}])]);
    drop(client);
    admin.batch_execute(&format!("drop database {ascii} with (force)")).unwrap();
}
