//! The library within an application: publishing at once after a commit, the wake-up, and what polling and notifying
//! cost those who write.

mod idle;
mod notify;
mod parts;
mod stage1;
mod wake;

use crate::ground::Ground;
use crate::page::Page;

pub fn measure(ground: &Ground, page: &mut Page) {
    stage1::measure(ground, page);
    wake::measure(ground, page);
    idle::measure(ground, page);
    notify::measure(ground, page);
    ground.empty();
}

/// Takes away what `init --notify` adds.
fn no_trigger(ground: &Ground) {
    let sql = "drop trigger if exists event_outbox_notify on event_outbox;
               drop function if exists event_outbox_notify()";
    ground.database.connect().batch_execute(sql).unwrap();
}

/// The figure below which so many hundredths of the others are.
fn percentile(figures: &[f64], hundredths: usize) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) * hundredths / 100]
}
