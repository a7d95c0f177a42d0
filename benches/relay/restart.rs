//! A broker that restarts while a relay with default settings drains: how soon the relay is back.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::ground::{DEADLINE, Ground, PAYLOAD_BYTES, QUEUE};
use crate::harness::{Broker, Rabbit, RabbitOptions, wait_until};
use crate::page::{Figure, Page};

/// More than the relay sends while the broker stops.
const EVENTS: usize = 50_000;

const TO_REACH: f64 = 6.0;

/// How long the broker stays down before it starts, which takes seconds more. In the longer ones the relay's pauses
/// between two tries grow to their longest, and the port opens at different moments of them.
const DOWN: [Duration; 3] = [Duration::ZERO, Duration::from_secs(6), Duration::from_secs(8)];

pub fn measure(ground: &Ground, page: &mut Page) {
    let mut rabbit = Rabbit::start(&RabbitOptions::default());
    Broker::open(&rabbit.url()).declare_queue(QUEUE, &[]);
    let seconds = DOWN.map(|down| first_confirm(ground, &mut rabbit, down));
    let list = seconds.map(|it| format!("{it:.1} s")).join(", ");
    let down = DOWN.map(|it| format!("{} s", it.as_secs())).join(", ");
    let longest = seconds.into_iter().fold(0.0, f64::max);
    let name = "a broker's restart in a drain, from the open port to the first event PUBLISHED, the longest";
    let beside = format!("down for {down} and its start: {list}");
    page.add(Figure::new(name, longest, "s").beside(beside).at_most(TO_REACH));
}

/// From the moment that the restarted broker's port takes connections to the first event's confirm in the table.
fn first_confirm(ground: &Ground, rabbit: &mut Rabbit, down: Duration) -> f64 {
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let mut relay = ground.start(&rabbit.url(), &["run"]);
    let mut client = ground.database.connect();
    let mut published = || {
        let sql = "select count(*) from event_outbox where status = 'PUBLISHED'";
        client.query_one(sql, &[]).unwrap().get::<_, i64>(0) as usize
    };
    wait_until("the drain is on its way", DEADLINE, || (published() > 0).then_some(()));
    rabbit.stop();
    relay.wait_for_line("nothing is claimed and no attempt is spent", DEADLINE);
    let before = published();
    assert!(before < EVENTS, "all were sent before the broker had stopped:\n{relay}");
    thread::sleep(down);
    let port = rabbit.port();
    let opened = thread::scope(|scope| {
        let opened = scope.spawn(move || {
            let open = || TcpStream::connect(("127.0.0.1", port)).is_ok().then(Instant::now);
            wait_until("the broker's port is open", DEADLINE, open)
        });
        // Asked beside the restart, which is over only when the broker says that it is ready.
        scope.spawn(|| rabbit.restart());
        let opened = opened.join().unwrap();
        wait_until("the first confirm after the restart", DEADLINE, || (published() > before).then_some(()));
        opened
    });
    opened.elapsed().as_secs_f64()
}
