//! `init` and the function: it makes it, brings it up to date, and leaves alone what is not its own.

use postgres::Client;

use crate::harness::{Proc, Servers};
use crate::world::{DEADLINE, OUTBOXD, World};

const SIGNATURE: &str = "outbox_append(text, text, text, jsonb, interval, interval, text, text, text)";

fn definition(client: &mut Client) -> String {
    let sql = format!("select pg_get_functiondef('public.{SIGNATURE}'::regprocedure)");
    client.query_one(&sql, &[]).unwrap().get(0)
}

#[test]
fn a_missing_or_older_function_is_replaced_and_one_that_is_right_is_not() {
    let mut world = World::new();
    let right = definition(&mut world.client);
    assert_eq!(world.outboxd(&["init"]).stdout, "table event_outbox is complete already\n");
    world.client.batch_execute(&right.replace("is empty", "has no text")).unwrap();
    assert_ne!(definition(&mut world.client), right);
    assert_eq!(world.outboxd(&["init"]).stdout, "table event_outbox has what it lacked\n");
    assert_eq!(definition(&mut world.client), right);
    world.client.batch_execute(&format!("drop function {SIGNATURE}")).unwrap();
    assert_eq!(world.outboxd(&["init"]).stdout, "table event_outbox has what it lacked\n");
    assert_eq!(definition(&mut world.client), right);
    assert_eq!(world.outboxd(&["init"]).stdout, "table event_outbox is complete already\n");
}

#[test]
fn the_function_lives_where_the_table_does() {
    let mut world = World::new();
    world.client.batch_execute("create schema app; alter table event_outbox set schema app").unwrap();
    let url = format!("{}?options=-csearch_path%3Dpublic,app", world.database.url);
    world.client.batch_execute(&format!("drop function {SIGNATURE}")).unwrap();
    let made = Proc::run(OUTBOXD, &["init"], &[("DATABASE_URL", &url)], DEADLINE);
    assert_eq!(made.stdout, "table event_outbox has what it lacked\n", "{made:?}");
    world.client.execute("select app.outbox_append('t', '{}')", &[]).unwrap();
    let again = Proc::run(OUTBOXD, &["init"], &[("DATABASE_URL", &url)], DEADLINE);
    assert_eq!(again.stdout, "table event_outbox is complete already\n", "{again:?}");
}

#[test]
fn somebody_elses_function_of_that_name_is_left_alone() {
    let database = Servers::shared().database();
    let mut client = database.connect();
    let theirs = format!("create function {SIGNATURE} returns text language sql as $$ select 'mine' $$");
    client.batch_execute(&theirs).unwrap();
    let before = definition(&mut client);
    let refused = Proc::run(OUTBOXD, &["init"], &[("DATABASE_URL", &database.url)], DEADLINE);
    let expected = "outboxd: function \"public\".\"outbox_append\" exists and does not append to table event_outbox: \
        rename it, then run: outboxd init\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(78), expected));
    assert_eq!(definition(&mut client), before);
    // The functions of two tables may have one name.
    let mut world = World::new();
    let refused = world.outboxd(&["init", "--table", "outbox"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("does not append to table outbox"), "{refused:?}");
    world.client.execute("select outbox_append('t', '{}')", &[]).unwrap();
    assert_eq!(world.count("WAITING"), 1);
}
