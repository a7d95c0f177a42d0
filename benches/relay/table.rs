//! What the table costs alone: against the same statements in the server, in round trips, in write-ahead log, with
//! millions of rows, and behind an old snapshot.

use std::fs;
use std::time::{Duration, Instant};

use outboxd::config::Database;
use outboxd::confirm::{Ledger, Receipt, Verdict};
use outboxd::event::Event;
use outboxd::outbox::{Outbox, Scope};
use outboxd::policy::Settlement;
use outboxd::relay::{Relay, Stop};
use postgres::Client;

use crate::ground::{Ground, PAYLOAD_BYTES, database_at};
use crate::harness::Direction;
use crate::page::{Figure, Page, count, median, with_unit};

const ROUNDS: usize = 3;
const EVENTS: usize = 50_000;

/// Each way; long against what a statement takes here.
const DELAY: Duration = Duration::from_millis(20);

pub fn measure(ground: &Ground, page: &mut Page) {
    server_side_loop(ground, page);
    round_trips(ground, page);
    write_ahead_log(ground, page);
    millions(ground, page);
    old_snapshot(ground, page);
}

/// Claims and settles everything with one thread, every confirm at once; in seconds.
pub fn claim_and_settle(ground: &Ground, database: &Database, batch_rows: usize, events: usize) -> f64 {
    let started = Instant::now();
    let mut claim = ground.config.claim.clone();
    claim.batch_rows = batch_rows;
    let mut outbox = Outbox::new(database.clone(), claim);
    let (mut after, mut settled) = (0, 0);
    while settled < events as u64 {
        let look = outbox.claim(&walk(after), started.elapsed()).unwrap();
        after = look.more_after.unwrap_or(0);
        let claimed = look.claimed.unwrap();
        let published = |(event, _): &(Event, _)| (event.id, Settlement::Published(receipt()));
        let settlements = claimed.events.iter().map(published).collect();
        settled += outbox.settle(claimed.claim, settlements).unwrap().tally.published;
    }
    assert_eq!(settled, events as u64);
    started.elapsed().as_secs_f64()
}

pub fn walk(after: i64) -> Scope {
    Scope::Walk { after, fresh: after == 0, barred: Vec::new() }
}

/// A receipt for a message that was never sent: what the table costs does not depend on it.
fn receipt() -> Receipt {
    let mut ledger = Ledger::default();
    ledger.sent(());
    match ledger.ack(1, false).pop() {
        Some((_, Verdict::Confirmed(receipt))) => receipt,
        other => panic!("{other:?}"),
    }
}

fn server_side_loop(ground: &Ground, page: &mut Page) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        ground.fill(EVENTS, PAYLOAD_BYTES);
        let mut client = ground.database.connect();
        for name in ["sort", "bitmapscan", "hashjoin", "mergejoin", "seqscan"] {
            client.batch_execute(&format!("set enable_{name} = off")).unwrap();
        }
        client.batch_execute("set jit = off").unwrap();
        let server = Instant::now();
        // Alone, because it commits each batch.
        client.batch_execute(&server_side()).unwrap();
        let server = server.elapsed().as_secs_f64();
        assert_eq!(ground.count("status = 'PUBLISHED'"), EVENTS);
        ground.fill(EVENTS, PAYLOAD_BYTES);
        rounds.push((server, claim_and_settle(ground, &ground.config.database, 500, EVENTS)));
    }
    let rate = |seconds: fn(&(f64, f64)) -> f64| EVENTS as f64 / median(rounds.iter().map(seconds));
    let ratios: Vec<f64> = rounds.iter().map(|(server, ours)| server / ours).collect();
    page.add(
        Figure::new("claim and settle alone", rate(|it| it.1), "events/s")
            .beside(format!(
                "the same statements in a loop in the server: {}",
                with_unit(rate(|it| it.0), "events/s")
            ))
            .ratios(&ratios)
            .at_least(0.7),
    );
}

/// The relay's own statements, in a loop that the server runs by itself.
fn server_side() -> String {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("{}/sql/{name}.sql", env!("CARGO_MANIFEST_DIR"))).unwrap();
        text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
    };
    let fill = |text: String| {
        text.replace("{due}", &read("part/due"))
            .replace("{size}", &read("part/size"))
            .replace("{table}", "event_outbox")
            .replace("{payload_text}", "payload")
    };
    let (walk, fetch, published) = (
        fill(read("query/claim_walk")),
        fill(read("query/claim_fetch")),
        fill(read("query/settle_published")),
    );
    format!(
        "do $loop$
        declare
            ids bigint[];
            last bigint := 0;
            events bigint;
            bytes bigint;
        begin
            loop
                execute $sql$ select array_agg(row.id) from ({walk}) as row (id, bytes, key) $sql$
                    into ids
                    using 0::float8, null::float8, 3, 1e6::float8, 16777216, 1048576, 500::bigint, last, '{{}}'::text[],
                        '{{}}'::bigint[];
                exit when ids is null;
                execute $sql$ select count(*), sum(length(row.payload)) from ({fetch}) as row (
                    id, event_id, event_type, key, headers_length, headers, exchange, routing_key, created_at,
                    expires_in, over_max_age, failed, fail_count, last_error, length, payload
                ) $sql$ into events, bytes using ids, null::float8, 16777216, 1048576;
                execute $sql$ {published} $sql$ using ids;
                last := ids[array_upper(ids, 1)];
                commit;
            end loop;
        end
        $loop$"
    )
}

fn round_trips(ground: &Ground, page: &mut Page) {
    let (proxy, url) = ground.database_proxy();
    let database = database_at(&url);
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.delay(direction, DELAY);
    }
    let per_batch = |rows: usize, batches: usize| {
        ground.fill(rows * (batches + 1), PAYLOAD_BYTES);
        let mut claim = ground.config.claim.clone();
        claim.batch_rows = rows;
        let mut outbox = Outbox::new(database.clone(), claim);
        let mut after = 0;
        let mut started = Instant::now();
        for batch in 0..=batches {
            // The first one opens the session and looks for keys that are held back.
            if batch == 1 {
                started = Instant::now();
            }
            let look = outbox.claim(&walk(after), Duration::from_secs(1000)).unwrap();
            after = look.more_after.unwrap_or(0);
            let claimed = look.claimed.unwrap();
            let published = |(event, _): &(Event, _)| (event.id, Settlement::Published(receipt()));
            let settlements = claimed.events.iter().map(published).collect();
            outbox.settle(claimed.claim, settlements).unwrap();
        }
        started.elapsed().as_secs_f64() / batches as f64 / (2.0 * DELAY.as_secs_f64())
    };
    let (small, large) = (per_batch(10, 10), per_batch(500, 10));
    page.add(
        Figure::new("round trips to the database per batch of 500 events", large, "")
            .beside(format!("a batch of 10: {small:.1}"))
            .reaches("the same for any size", large < small + 1.0),
    );
}

fn write_ahead_log(ground: &Ground, page: &mut Page) {
    let mut client = ground.database.connect();
    for pages in ["on", "off"] {
        client.batch_execute(&format!("alter system set full_page_writes = {pages}")).unwrap();
        client.batch_execute("select pg_reload_conf()").unwrap();
        ground.empty();
        let start = wal(&mut client);
        ground.insert(EVENTS, "null");
        let written = wal(&mut client);
        client.batch_execute("checkpoint").unwrap();
        let before = wal(&mut client);
        claim_and_settle(ground, &ground.config.database, 500, EVENTS);
        let settled = wal(&mut client) - before;
        let name = format!(
            "write-ahead log per event by claim and settle, after a checkpoint, full-page images {pages}"
        );
        let writer = (written - start) / EVENTS as f64;
        let figure = Figure::new(name, settled / EVENTS as f64, "bytes");
        page.add(figure.beside(format!("the writer's own, before the checkpoint: {writer:.0} bytes")));
    }
    client.batch_execute("alter system reset full_page_writes").unwrap();
    client.batch_execute("select pg_reload_conf()").unwrap();
}

fn wal(client: &mut Client) -> f64 {
    let sql = "select (pg_current_wal_insert_lsn() - '0/0')::float8";
    client.query_one(sql, &[]).unwrap().get(0)
}

/// Claims beside many rows: what is waiting, what is published, and what the planner knows of it.
fn millions(ground: &Ground, page: &mut Page) {
    let full = std::env::var("OUTBOXD_BENCH_FULL").is_ok();
    let (waiting, published) = if full { (2_000_000, 5_000_000) } else { (200_000, 500_000) };
    let mut client = ground.database.connect();
    client.batch_execute("alter table event_outbox set (autovacuum_enabled = off)").unwrap();
    ground.empty();
    ground.bulk(10_000, "WAITING");
    client.batch_execute("vacuum analyze event_outbox").unwrap();
    let few = claim_ms(ground);
    ground.empty();
    ground.bulk(published, "PUBLISHED");
    ground.bulk(waiting, "WAITING");
    let never = claim_ms(ground);
    client.batch_execute("vacuum analyze event_outbox").unwrap();
    let analysed = claim_ms(ground);
    for (ms, how) in [(never, "never analysed"), (analysed, "analysed")] {
        let name = format!(
            "a claim of 500 at {} waiting and {} published, {how}",
            count(waiting as usize),
            count(published as usize)
        );
        let beside = format!("at 10,000 waiting: {few:.1} ms");
        page.add(Figure::new(name, ms, "ms").beside(beside).ratio(ms / few).at_most(1.5));
    }
    client.batch_execute("alter table event_outbox reset (autovacuum_enabled)").unwrap();
    ground.empty();
}

/// The median of claims from the table's start, each dropped again.
fn claim_ms(ground: &Ground) -> f64 {
    let mut outbox = Outbox::new(ground.config.database.clone(), ground.config.claim.clone());
    // The first one opens a session.
    outbox.counts().unwrap();
    median((0..9).map(|_| {
        let started = Instant::now();
        let look = outbox.claim(&walk(0), Duration::from_secs(1)).unwrap();
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        let claimed = look.claimed.unwrap();
        assert_eq!(claimed.events.len(), 500);
        let released = claimed.events.iter().map(|(event, _)| (event.id, Settlement::Released)).collect();
        outbox.settle(claimed.claim, released).unwrap();
        ms
    }))
}

/// Ticks of some thousand events each, while someone holds a snapshot from before them all.
fn old_snapshot(ground: &Ground, page: &mut Page) {
    const TICKS: usize = 40;
    const PER_TICK: usize = 5_000;
    ground.empty();
    let mut relay = Relay::new(ground.config.clone());
    let mut tick = || {
        ground.insert(PER_TICK, "null");
        let started = Instant::now();
        let tick = relay.tick(&Stop::new());
        assert_eq!(tick.tally.published, PER_TICK as u64, "{tick:?}");
        ground.renew_queue();
        started.elapsed().as_secs_f64()
    };
    let undisturbed = median((0..5).map(|_| tick()));
    let mut holder = ground.database.connect();
    holder.batch_execute("begin isolation level repeatable read; select count(*) from event_outbox").unwrap();
    let ticks: Vec<f64> = (0..TICKS).map(|_| tick()).collect();
    holder.batch_execute("rollback").unwrap();
    let end = median(ticks[TICKS - 5..].iter().copied());
    let name =
        format!("the last of {TICKS} ticks of {} events, while a snapshot is held open", count(PER_TICK));
    page.add(
        Figure::new(name, PER_TICK as f64 / end, "events/s")
            .beside(format!("before it: {}", with_unit(PER_TICK as f64 / undisturbed, "events/s")))
            .ratio(undisturbed / end)
            .at_least(0.5),
    );
}
