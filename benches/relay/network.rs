//! The relay over networks that are slow in one way each.

use std::time::Duration;

use crate::bare::Bare;
use crate::ground::{Ground, PAYLOAD_BYTES, QUEUE, amqp_url, payload};
use crate::harness::{Direction, Proxy};
use crate::page::{Figure, Page, count, with_unit};

/// A neighbouring region.
const ROUND_TRIP: Duration = Duration::from_millis(20);
const EVENTS: usize = 10_000;
const ONE_AT_A_TIME: usize = 300;
const TIMES: f64 = 50.0;

const LINK_BYTES_PER_SECOND: u64 = 1_000_000;
const LARGE_BYTES: usize = 100_000;

pub fn measure(ground: &Ground, page: &mut Page) {
    round_trip(ground, page);
    slow_link(ground, page);
}

/// What the windows are for: a drain does not wait for each confirm.
fn round_trip(ground: &Ground, page: &mut Page) {
    let proxy = ground.proxy();
    proxy.delay(Direction::ToServer, ROUND_TRIP / 2);
    proxy.delay(Direction::ToClient, ROUND_TRIP / 2);
    let body = payload(PAYLOAD_BYTES);
    let bare = Bare { port: proxy.port(), workers: 1, window: 1, body: body.as_bytes() };
    let one_at_a_time = ONE_AT_A_TIME as f64 / bare.publish(ONE_AT_A_TIME);
    assert_eq!(ground.take().0.len(), ONE_AT_A_TIME);
    ground.fill(EVENTS, PAYLOAD_BYTES);
    let seconds = drain(ground, &proxy, EVENTS);
    let rate = EVENTS as f64 / seconds;
    page.add(
        Figure::new(
            format!("a drain of {} events over a round trip of {ROUND_TRIP:?}", count(EVENTS)),
            rate,
            "events/s",
        )
        .beside(format!("a bare publisher of one at a time: {}", with_unit(one_at_a_time, "events/s")))
        .ratio(rate / one_at_a_time)
        .at_least(TIMES),
    );
}

/// A link that is slow, not dead: full windows take seconds to cross it, and no deadline may take that for an end.
fn slow_link(ground: &Ground, page: &mut Page) {
    let full = std::env::var("OUTBOXD_BENCH_FULL").is_ok_and(|it| it == "1");
    let (events, note) = if full { (1_000, "") } else { (200, " (OUTBOXD_BENCH_FULL=1: 1000)") };
    let proxy = ground.proxy();
    proxy.bandwidth(Direction::ToServer, LINK_BYTES_PER_SECOND);
    ground.fill(events, LARGE_BYTES);
    let seconds = drain(ground, &proxy, events);
    let bytes = proxy.bytes(Direction::ToServer);
    let link = bytes as f64 / LINK_BYTES_PER_SECOND as f64;
    page.add(
        Figure::new(
            format!("{events}{note} events of {} bytes over a link of 1 MB/s", count(LARGE_BYTES)),
            seconds,
            "s",
        )
        .beside(format!("what the link takes for the bytes: {link:.1} s"))
        .ratio(seconds / link)
        // A drain that does otherwise does not come this far.
        .reaches("all arrive once, none unconfirmed", true),
    );
}

/// A drain over this network, in seconds: everything arrives once, over one connection, without a doubt.
fn drain(ground: &Ground, proxy: &Proxy, events: usize) -> f64 {
    let before = proxy.accepted();
    let (ended, seconds) = ground.once(&amqp_url(proxy.port()));
    assert_eq!(ended.stdout.trim(), format!("claimed {events}: published {events}"), "{ended:?}");
    let clean = ground.count("status = 'PUBLISHED' and fail_count = 0 and last_error is null");
    let (messages, copies) = ground.take();
    assert_eq!((clean, messages.len(), copies), (events, events, 0), "{ended:?}");
    assert_eq!(proxy.accepted() - before, 1, "{ended:?}");
    assert_eq!(ground.broker.queue_len(QUEUE), 0);
    seconds
}
