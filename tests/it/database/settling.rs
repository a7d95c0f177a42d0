//! Settling meets locks, errors, and rows that someone else decided about meanwhile.

use super::{Batch, EVENTS, RUN, TERMINATE_CLAIMS, goes_on, lines};
use crate::harness::wait_until;
use crate::world::{DEADLINE, World};

/// `create index` is granted its lock beside a claim; the settle then waits for it, and gives up.
#[test]
fn a_create_index_behind_an_open_claim_delays_the_confirms_and_nothing_else() {
    let mut batch = Batch::unconfirmed(World::new(), &[]);
    let mut other = batch.world.database.connect();
    // What `create index` locks, and for as long as that takes on a large table.
    other.batch_execute("begin; lock table event_outbox in share mode").unwrap();
    batch.broker.heal();
    let line = batch.relay.wait_for_line("nothing is claimed and no attempt is spent", DEADLINE);
    assert!(line.contains("55P03"), "{line}");
    assert_eq!(batch.world.count("PUBLISHED"), 1);
    other.batch_execute("create index by_type on event_outbox (event_type); commit").unwrap();
    batch.recovers(0);
}

#[test]
fn a_settle_that_is_refused_in_passing_is_written_late_and_nothing_comes_twice() {
    for code in ["40P01", "40001", "55P03", "57014", "25006"] {
        let mut world = World::new();
        let queue = world.queue();
        world
            .client
            .batch_execute(&format!(
                "create sequence calls;
                 create function refuse() returns trigger language plpgsql as $$
                     begin
                         if nextval('calls') = 1 then raise exception 'not now' using errcode = '{code}'; end if;
                         return new;
                     end $$;
                 create trigger refuse before update on event_outbox for each row execute function refuse()"
            ))
            .unwrap();
        world.insert_many(&queue, EVENTS);
        let mut relay = world.start(&RUN);
        wait_until(&format!("{code}: all are published:\n{relay}"), DEADLINE, || {
            (world.count("PUBLISHED") == EVENTS).then_some(())
        });
        // It is told at the end of the beat, after the confirms are written.
        relay.wait_for_line(&format!("SQLSTATE {code}"), DEADLINE);
        let (_, log) = relay.output();
        let told = log
            .lines()
            .filter(|line| !line.contains("level=debug ") && line.contains(&format!("SQLSTATE {code}")));
        assert_eq!(told.count(), 1, "{log}");
        let counted = "select count(*) from event_outbox where fail_count > 0 or last_error is not null";
        assert_eq!(world.client.query_one(counted, &[]).unwrap().get::<_, i64>(0), 0, "{code}");
        goes_on(&mut world, &queue, &relay);
        assert_eq!(world.arrivals(&queue).len() as i64, EVENTS + 1, "{code}");
    }
}

#[test]
fn rows_that_were_decided_about_between_claim_and_settle_stay_as_they_are() {
    let mut batch = Batch::unconfirmed(World::new(), &[]);
    let client = &mut batch.world.client;
    client.query_one(TERMINATE_CLAIMS, &[]).unwrap();
    let rows = client.query("select id from event_outbox where status = 'WAITING' order by id", &[]).unwrap();
    let id = |n: usize| rows[n].get::<_, i64>(0);
    for (sql, n) in [
        ("delete from event_outbox where id = $1", 0),
        ("update event_outbox set status = 'SKIPPED' where id = $1", 1),
        ("update event_outbox set status = 'EXPIRED', last_error = 'by hand' where id = $1", 2),
        ("update event_outbox set status = 'PUBLISHED', published_at = 'epoch' where id = $1", 3),
    ] {
        // The rows are free as soon as the server has ended the session.
        assert_eq!(client.execute(sql, &[&id(n)]).unwrap(), 1, "{sql}");
    }
    batch.broker.heal();
    wait_until(&format!("the others are published:\n{}", batch.relay), DEADLINE, || {
        (batch.world.count("PUBLISHED") == EVENTS + 1 - 3).then_some(())
    });
    goes_on(&mut batch.world, &batch.queue, &batch.relay);
    let world = &mut batch.world;
    assert_eq!(world.row(id(1)).status, "SKIPPED");
    assert_eq!(world.row(id(2)).last_error.as_deref(), Some("by hand"));
    let untouched = "select published_at = 'epoch' from event_outbox where id = $1";
    assert!(world.client.query_one(untouched, &[&id(3)]).unwrap().get::<_, bool>(0));
    assert_eq!(world.arrivals(&batch.queue).len() as i64, EVENTS + 1);
    assert!(lines(&batch.relay, "level=error ") <= 1, "{}", batch.relay);
}

/// What a claim and a settle need they say themselves, whatever the defaults of the database or the role are.
#[test]
fn stricter_defaults_of_the_database_do_not_matter() {
    const MANY: i64 = 2_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    let name = world.database.name.clone();
    for (setting, value) in [
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
        ("statement_timeout", "100ms"),
        ("lock_timeout", "100ms"),
        ("idle_in_transaction_session_timeout", "100ms"),
        ("standard_conforming_strings", "off"),
    ] {
        world.client.batch_execute(&format!("alter database {name} set {setting} = '{value}'")).unwrap();
    }
    let options = [&RUN[..], &["--batch-rows", "50", "--time-zone", "Asia/Tokyo"]].concat();
    let relays: Vec<_> = (0..2).map(|_| world.start(&options)).collect();
    wait_until(&format!("all are published:\n{}", relays[0]), DEADLINE, || {
        (world.count("PUBLISHED") == MANY).then_some(())
    });
    for relay in &relays {
        assert_eq!(lines(relay, "level=error ") + lines(relay, "level=warn "), 0, "{relay}");
    }
    assert_eq!(world.arrivals(&queue).len() as i64, MANY);
}

/// Without a lost claim only a trigger can take a row away from a settle.
#[test]
fn a_row_that_the_settle_does_not_find_is_counted_as_gone() {
    let mut world = World::new();
    let queue = world.queue();
    let (keeps, goes) = (world.insert(&queue, "{}"), world.insert(&queue, "{}"));
    world
        .client
        .batch_execute(&format!(
            "create function gone() returns trigger language plpgsql as $$ begin return null; end $$;
             create trigger gone before update on event_outbox for each row
                 when (old.id = {goes}) execute function gone()"
        ))
        .unwrap();
    let output = world.once(&[], 0);
    assert!(output.stdout.contains("claimed 2: published 1, gone meanwhile 1"), "{output:?}");
    assert!(!output.stderr.contains("level=error "), "{output:?}");
    assert_eq!((world.row(keeps).status.as_str(), world.row(goes).status.as_str()), ("PUBLISHED", "WAITING"));
}
