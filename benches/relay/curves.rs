//! How a drain's rate, its CPU, its memory and a claim's time grow with one thing at a time, all else at its default.
//!
//! The points are in a CSV file under `target`, one per broker version, and the plots are drawn of all of these.

mod plot;
mod point;
mod rows;

use std::time::{Duration, Instant};

use crate::ground::{Ground, PAYLOAD_BYTES};
use crate::page::{Figure, Page, with_unit};

use self::point::Point;
use self::rows::Row;

/// What a drain has to do, and how it is set.
#[derive(Clone)]
struct Load {
    /// More than are drained; nothing where just these are in the table.
    backlog: Option<usize>,
    payload_bytes: usize,
    workers: usize,
    window: usize,
    /// Processes on one table.
    relays: usize,
    /// Behind a proxy with this round trip.
    broker: Option<Duration>,
    database: Option<Duration>,
}

/// What a curve goes along.
struct Parameter {
    /// Of its rows and of its plot's file.
    name: &'static str,
    title: &'static str,
    /// The axis, with its unit.
    axis: &'static str,
    values: &'static [usize],
    set: fn(&mut Load, usize),
}

const PARAMETERS: [Parameter; 7] = [
    Parameter {
        name: "backlog",
        title: "Backlog",
        axis: "events that are due",
        values: &[10_000, 100_000, 1_000_000],
        set: |load, value| load.backlog = Some(value),
    },
    Parameter {
        name: "payload",
        title: "Payload",
        axis: "bytes per event",
        values: &[100, 1_000, 10_000, 1_000_000],
        set: |load, value| load.payload_bytes = value,
    },
    Parameter {
        name: "workers",
        title: "Workers",
        axis: "workers",
        values: &[1, 2, 4],
        set: |load, value| load.workers = value,
    },
    Parameter {
        name: "window",
        title: "Window",
        axis: "unconfirmed messages per worker",
        values: &[1, 16, 64, 256, 1024],
        set: |load, value| load.window = value,
    },
    Parameter {
        name: "relays",
        title: "Relays",
        axis: "processes on one table",
        values: &[1, 2, 4],
        set: |load, value| load.relays = value,
    },
    Parameter {
        name: "broker-round-trip",
        title: "Round trip to the broker",
        axis: "ms, through a proxy",
        values: &[0, 1, 20],
        set: |load, value| load.broker = Some(Duration::from_millis(value as u64)),
    },
    Parameter {
        name: "database-round-trip",
        title: "Round trip to the database",
        axis: "ms, through a proxy",
        values: &[0, 1, 20],
        set: |load, value| load.database = Some(Duration::from_millis(value as u64)),
    },
];

pub fn measure(ground: &Ground, page: &mut Page) {
    let began = Instant::now();
    let broker = &ground.config.broker;
    let usual = Load {
        backlog: None,
        payload_bytes: PAYLOAD_BYTES,
        workers: broker.workers,
        window: broker.window,
        relays: 1,
        broker: None,
        database: None,
    };
    let mut rows = Vec::new();
    for parameter in &PARAMETERS {
        for value in parameter.values {
            let mut load = usual.clone();
            (parameter.set)(&mut load, *value);
            let point = point::measure(ground, &load);
            page.add(figure(parameter, *value, &point));
            rows.push(Row { parameter: parameter.name.into(), value: *value, point });
        }
    }
    ground.empty();
    rows::write(&ground.versions().rabbit, &rows);
    println!("\nthe curves took {:.0} s", began.elapsed().as_secs_f64());
}

fn figure(parameter: &Parameter, value: usize, point: &Point) -> Figure {
    let name = format!("{} of {} {}", parameter.title, with_unit(value as f64, ""), parameter.axis);
    let Point { cpu_us, rss_mib, claim_ms, .. } = point;
    Figure::new(name, point.rate, "events/s")
        .and(&format!(
            "; {cpu_us:.1} us of CPU per event, peak RSS {rss_mib:.1} MiB, a claim {claim_ms:.2} ms"
        ))
        .beside(format!("bare publisher: {}", with_unit(point.bare, "events/s")))
        .ratio(point.rate / point.bare)
}

/// Draws all that was measured, this time or before.
pub fn draw() {
    let brokers = rows::read();
    if brokers.is_empty() {
        println!("there is nothing to draw: measure the group `curves` first");
    }
    for parameter in PARAMETERS.iter().filter(|_| !brokers.is_empty()) {
        println!("drawn: {}", plot::draw(parameter, &brokers).display());
    }
}
