//! What polling an idle table costs: CPU of the database and of the relay.

use std::thread;
use std::time::{Duration, Instant};

use crate::cpu;
use crate::ground::{DEADLINE, Ground};
use crate::harness::{Proc, wait_until};
use crate::page::{Figure, Page, count};

/// Until the relay has its sessions, and what filling the table has left to do is done.
const SETTLE_IN: Duration = Duration::from_secs(3);

const WINDOW: Duration = Duration::from_secs(20);

pub fn measure(ground: &Ground, page: &mut Page) {
    let full = std::env::var("OUTBOXD_BENCH_FULL").is_ok();
    let rows = if full { 5_000_000 } else { 500_000 };
    ground.empty();
    ground.bulk(rows, "PUBLISHED");
    let mut client = ground.database.connect();
    client.batch_execute("vacuum analyze event_outbox").unwrap();
    client.batch_execute("checkpoint").unwrap();
    let note = if full { "" } else { " (5,000,000 with OUTBOXD_BENCH_FULL=1)" };
    let figures = [
        ("no relay", None),
        ("run, by default every 30 s", Some(&["run"][..])),
        ("run --interval 1s", Some(&["run", "--interval", "1s", "--min-age", "0s"])),
        ("run --interval 100ms", Some(&["run", "--interval", "100ms", "--min-age", "0s"])),
    ];
    for (what, arguments) in figures {
        let (database, relay) = used(ground, arguments);
        let name = format!(
            "CPU of the database a minute, on an idle table of {} published rows{note}: {what}",
            count(rows as usize)
        );
        let figure =
            Figure::new(name, database * 60.0, "s").and(&format!(", {:.2} % of one core", database * 100.0));
        let relay = format!("the relay {:.2} s, {:.2} %", relay * 60.0, relay * 100.0);
        page.add(if arguments.is_some() { figure.beside(relay) } else { figure });
    }
    ground.empty();
}

/// What database and relay use, as parts of one core.
fn used(ground: &Ground, arguments: Option<&[&str]>) -> (f64, f64) {
    let relay = arguments.map(|arguments| ground.start(ground.servers.amqp_url(), arguments));
    if relay.is_some() {
        wait_until("the relay has a session", DEADLINE, || is_connected(ground).then_some(()));
    }
    thread::sleep(SETTLE_IN);
    let now = || {
        let database = cpu::of_server(ground.servers.postgres().unwrap());
        (database, relay.as_ref().map_or(0.0, |it: &Proc| cpu::of_process(it.id())))
    };
    let (before, began) = (now(), Instant::now());
    thread::sleep(WINDOW);
    let (after, seconds) = (now(), began.elapsed().as_secs_f64());
    ((after.0 - before.0) / seconds, (after.1 - before.1) / seconds)
}

fn is_connected(ground: &Ground) -> bool {
    let sql = "select exists (select from pg_stat_activity
               where datname = current_database() and application_name like 'outboxd%')";
    ground.database.connect().query_one(sql, &[]).unwrap().get(0)
}
