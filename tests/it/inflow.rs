//! What keeps a relay busy for long: many blocked keys, writers that never stop; and what must not wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use outboxd::config::Config;
use outboxd::confirm::{Ledger, Receipt, Verdict};
use outboxd::outbox::Outbox;

use crate::harness::{unique, wait_until};
use crate::world::{DEADLINE, World};

/// More than a claim remembers as barred, each with followers that are due.
const KEYS: i64 = 12_000;

#[test]
fn events_behind_more_blocked_keys_than_a_claim_remembers_are_sent() {
    let mut world = World::new();
    let queue = world.queue();
    let sql = "insert into event_outbox
            (event_id, event_type, payload, created_at, ordering_key, status, fail_count, available_at)
        select lpad(n::text, 26, '0'), $1, '{}', now() - interval '1 hour', 'key ' || n % $2::bigint,
            case when n < $2 then 'FAILED' else 'WAITING' end,
            case when n < $2 then 1 else 0 end,
            case when n < $2 then now() + interval '1 hour' end
        from generate_series(0, $2::bigint * 4 - 1) as n";
    world.client.execute(sql, &[&queue, &KEYS]).unwrap();
    let ready: Vec<i64> = (0..10).map(|_| world.insert(&queue, "{}")).collect();
    let output = world.once(&[], 0);
    assert_eq!(output.stdout, "claimed 10: published 10\n", "{output:?}");
    assert!(ready.iter().all(|id| world.row(*id).status == "PUBLISHED"));
    let held = world.once(&[], 0).stdout;
    assert_eq!(
        held,
        format!(
            "0 due; {KEYS} failed and backing off; {} held back by the first event of their key: \
             outboxd status names it\n",
            KEYS * 3
        )
    );
}

#[test]
fn what_has_failed_is_tried_again_although_writers_never_stop() {
    let mut world = World::new();
    let (queue, missing) = (world.queue(), unique("missing"));
    let id = world.insert(&missing, "{}");
    let args = ["--interval", "1s", "--min-age", "0s", "--backoff-base", "10ms", "--backoff-max", "10ms"];
    let _relay = world.start(&[&args[..], &["--max-failures", "1000", "--batch-rows", "20"]].concat());
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut client = world.database.connect();
        let (is_done, queue) = (&is_done, &queue);
        scope.spawn(move || {
            let began = Instant::now();
            let sql = "insert into event_outbox (event_id, event_type, payload, ordering_key)
                select $1 || lpad(n::text, 12, '0'), $2, '{}', 'key ' || n from generate_series(1, 20) as n";
            while !is_done.load(Ordering::Relaxed) && began.elapsed() < DEADLINE * 3 {
                let prefix = &ulid::Ulid::generate().to_string()[12..];
                client.execute(sql, &[&prefix, queue]).unwrap();
            }
        });
        let started = Instant::now();
        let tried_again = wait_until("the event was tried three times", DEADLINE, || {
            (world.row(id).fail_count >= 3).then(|| started.elapsed())
        });
        world.broker.declare_queue(&missing, &[]);
        wait_until("the event is PUBLISHED", DEADLINE, || {
            (world.row(id).status == "PUBLISHED").then_some(())
        });
        is_done.store(true, Ordering::Relaxed);
        assert!(tried_again < DEADLINE);
    });
}

fn receipt() -> Receipt {
    let mut ledger = Ledger::default();
    ledger.sent(());
    match ledger.ack(1, false).pop() {
        Some((_, Verdict::Confirmed(receipt))) => receipt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_confirm_does_not_undo_an_operators_re_send() {
    let mut world = World::new();
    let queue = world.queue();
    let (sent_again, retried) = (world.insert(&queue, "{}"), world.insert(&queue, "{}"));
    world
        .client
        .execute("update event_outbox set status = 'PUBLISHED' where id = $1", &[&sent_again])
        .unwrap();
    world.client.execute("update event_outbox set status = 'DEAD' where id = $1", &[&retried]).unwrap();
    let config = Config::new(&world.database.url, &world.amqp_url).unwrap();
    world
        .client
        .execute("update event_outbox set published_at = now() where id = $1", &[&sent_again])
        .unwrap();
    for (id, further) in [(sent_again, &["--status", "published", "--since", "1h"][..]), (retried, &[])] {
        let output = world.outboxd(&[&["retry", "--id", &id.to_string()], further].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    let mut outbox = Outbox::new(config.database, config.claim);
    let (written, open) = outbox
        .settle_late(&[(sent_again, receipt()), (retried, receipt())], |row, error| panic!("{row}: {error}"))
        .unwrap();
    // What was never known to be sent is known now; what is wanted a second time is not done by the first.
    assert_eq!((written, open.len()), (1, 0));
    assert_eq!(world.row(retried).status, "PUBLISHED");
    assert_ne!(world.row(sent_again).status, "PUBLISHED");
    world.once(&["--min-age", "0s"], 0);
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn a_row_that_refuses_its_confirm_does_not_keep_others_from_theirs() {
    let mut world = World::new();
    let queue = world.queue();
    let ids: Vec<i64> = (0..3).map(|_| world.insert(&queue, "{}")).collect();
    let sql = format!(
        "alter table event_outbox add constraint odd check (id <> {} or status <> 'PUBLISHED')",
        ids[1]
    );
    world.client.batch_execute(&sql).unwrap();
    let config = Config::new(&world.database.url, &world.amqp_url).unwrap();
    let mut outbox = Outbox::new(config.database, config.claim);
    let confirmed: Vec<(i64, Receipt)> = ids.iter().map(|id| (*id, receipt())).collect();
    let mut refused = Vec::new();
    let (written, open) =
        outbox.settle_late(&confirmed, |row, error| refused.push((row, error.to_string()))).unwrap();
    let [(row, why)] = &refused[..] else { panic!("{refused:?}") };
    assert!(*row == ids[1] && why.contains("odd"), "{refused:?}");
    assert_eq!((written, open.iter().map(|(id, _)| *id).collect::<Vec<_>>()), (2, vec![ids[1]]));
    let statuses: Vec<String> = ids.iter().map(|id| world.row(*id).status).collect();
    assert_eq!(statuses, ["PUBLISHED", "WAITING", "PUBLISHED"]);
}
