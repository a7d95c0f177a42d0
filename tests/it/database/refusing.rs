//! A trigger or a constraint of the application's own that refuses what the relay writes into a row.

use crate::database::{EVENTS, RUN, goes_on, lines};
use crate::harness::{Proc, unique, wait_until};
use crate::world::{DEADLINE, World};

/// How the row of this id is refused: at once, at the commit, and only its end as PUBLISHED.
fn refusals(id: i64) -> [String; 3] {
    let raises = "create function refuse() returns trigger language plpgsql as $$
        begin raise exception 'not this one'; end $$;";
    [
        format!(
            "{raises} create trigger refuse before update on event_outbox for each row when (old.id = {id})
                 execute function refuse()"
        ),
        format!(
            "{raises} create constraint trigger refuse after update on event_outbox deferrable initially deferred
                 for each row when (old.id = {id}) execute function refuse()"
        ),
        format!("alter table event_outbox add constraint \"not this one\" check (id <> {id} or status <> 'PUBLISHED')"),
    ]
}

const MEND: &str = "drop function if exists refuse cascade; \
    alter table event_outbox drop constraint if exists \"not this one\"";

/// Waits until this many events are PUBLISHED.
fn published(world: &mut World, relay: &Proc, count: i64) {
    wait_until(&format!("{count} are published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") == count).then_some(())
    });
}

#[test]
fn a_row_that_refuses_its_settle_is_sent_once_and_keeps_nobody_from_theirs() {
    for refusal in 0..3 {
        let mut world = World::new();
        let queue = world.queue();
        world.insert_many(&queue, EVENTS / 2);
        let bad = world.insert(&queue, "{}");
        world.insert_many(&queue, EVENTS / 2);
        let nowhere = world.insert(&unique("nowhere"), "{}");
        let expired = world.insert_with(&queue, "{}", "created_at, expired_at", "'2020-01-01', '2020-01-02'");
        world.client.batch_execute(&refusals(bad)[refusal]).unwrap();
        let mut relay = world.start(&RUN);
        published(&mut world, &relay, EVENTS);
        // Whatever else became of its claim is written with it, not in a later one.
        assert_eq!((world.row(nowhere).status.as_str(), world.row(nowhere).fail_count), ("FAILED", 1));
        assert_eq!(world.row(expired).status, "EXPIRED");
        // Many beats later.
        for _ in 0..5 {
            goes_on(&mut world, &queue, &relay);
        }
        assert_eq!(world.row(bad).status, "WAITING");
        assert_eq!(world.arrivals(&queue).len() as i64, EVENTS + 1 + 5, "{relay}");
        let line = relay.wait_for_line("a confirm cannot be written", DEADLINE);
        assert!(line.contains("not this one") && line.contains(&format!("id={bad} ")), "{line}");
        assert!(line.contains("mend that, or what it has against this row"), "{line}");
        assert_eq!(lines(&relay, "trouble"), 0, "{relay}");
        // What is told is also in the row, if that takes it.
        let noted = world.row(bad).last_error.is_some_and(|it| it.contains("not this one"));
        assert_eq!(noted, refusal == 2, "{:?}", world.row(bad));

        world.client.batch_execute(MEND).unwrap();
        published(&mut world, &relay, EVENTS + 1 + 5);
        assert_eq!(world.row(bad).last_error, None);
        assert_eq!(world.arrivals(&queue).len(), 0, "{relay}");
    }
}

#[test]
fn what_follows_a_confirmed_row_of_its_key_that_refuses_its_settle_is_sent() {
    let mut world = World::new();
    let queue = world.queue();
    let columns = ("created_at, ordering_key", "'2020-01-01', 'k'");
    let bad = world.insert_with(&queue, "{}", columns.0, columns.1);
    let follower = world.insert_with(&queue, "{}", columns.0, columns.1);
    world.client.batch_execute(&refusals(bad)[0]).unwrap();
    let relay = world.start(&RUN);
    published(&mut world, &relay, 1);
    let later = world.insert_with(&queue, "{}", columns.0, columns.1);
    published(&mut world, &relay, 2);
    let expected = [bad, follower, later].map(|id| world.row(id).event_id);
    assert_eq!(world.arrivals(&queue), expected, "{relay}");
}

/// Nobody remembers the confirm then; the row does, if it takes a note.
#[test]
fn a_relay_that_comes_after_sends_it_once_more_and_says_so() {
    let mut world = World::new();
    let queue = world.queue();
    let bad = world.insert(&queue, "{}");
    world.insert_many(&queue, 2);
    world.client.batch_execute(&refusals(bad)[2]).unwrap();
    let output = world.once(&[], 75);
    assert_eq!(output.stdout, "claimed 3: published 2, not written 1\n", "{output:?}");
    let output = world.once(&[], 75);
    assert_eq!(output.stdout, "claimed 1: not written 1\n", "{output:?}");
    let copies = world.broker.drain_ready(&queue);
    let event_id = world.row(bad).event_id;
    let copies: Vec<_> = copies.iter().filter(|it| it.id() == event_id).collect();
    let marked = copies.iter().map(|it| it.headers.contains_key("x-outboxd-possible-duplicate"));
    assert_eq!(marked.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_trigger_that_keeps_a_row_as_it_is_without_a_word_does_not_have_it_sent_again() {
    let mut world = World::new();
    let queue = world.queue();
    let bad = world.insert(&queue, "{}");
    let keeps = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger refuse before update on event_outbox for each row when (old.id = {bad})
             execute function refuse()"
    );
    world.client.batch_execute(&keeps).unwrap();
    let relay = world.start(&RUN);
    for _ in 0..5 {
        goes_on(&mut world, &queue, &relay);
    }
    assert_eq!(world.row(bad).status, "WAITING");
    assert_eq!(world.arrivals(&queue).len(), 1 + 5, "{relay}");
    world.client.batch_execute(MEND).unwrap();
    published(&mut world, &relay, 1 + 5);
}

#[test]
fn an_outcome_that_is_no_confirm_and_is_refused_is_told_and_decided_again() {
    let mut world = World::new();
    let bad = world.insert(&unique("nowhere"), "{}");
    let other = world.insert(&unique("nowhere"), "{}");
    world.client.batch_execute(&refusals(bad)[0]).unwrap();
    let output = world.once(&[], 75);
    assert_eq!(output.stdout, "claimed 2: failed 1, not written 1\n", "{output:?}");
    assert!(output.stderr.contains("an outcome cannot be written"), "{output:?}");
    assert_eq!((world.row(bad).status.as_str(), world.row(other).status.as_str()), ("WAITING", "FAILED"));
}

#[test]
fn a_table_that_refuses_all_confirms_stops_the_relay_until_it_is_mended() {
    const MANY: i64 = 4_000;
    let mut world = World::new();
    let queue = world.queue();
    world.insert_many(&queue, MANY);
    world.client.batch_execute(&refusals(0)[0].replace("old.id = 0", "old.id > 0")).unwrap();
    let mut relay = world.start(&RUN);
    let line = relay.wait_for_line("trouble began", DEADLINE);
    assert!(
        line.contains("events are confirmed and cannot be marked") && line.contains("not this one"),
        "{line}"
    );
    let sent = i64::from(world.broker.queue_len(&queue));
    assert!(sent < MANY, "{sent}");
    assert!(relay.is_running());
    world.client.batch_execute(MEND).unwrap();
    published(&mut world, &relay, MANY);
    assert_eq!(world.arrivals(&queue).len() as i64, MANY, "{relay}");
}
