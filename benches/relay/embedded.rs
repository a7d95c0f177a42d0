//! The library within an application: publishing at once after a commit, the wake-up, and what polling and notifying
//! cost those who write.

mod idle;
mod notify;
mod parts;
mod stage1;
mod wake;

use crate::ground::Ground;

pub fn measure(ground: &Ground) {
    stage1::measure(ground);
    wake::measure(ground);
    idle::measure(ground);
    notify::measure(ground);
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

/// The least and the most of the rounds, which tell what the noise is.
fn range(figures: &[f64]) -> String {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(0.0, f64::max);
    format!("[{least:.2}..{most:.2}]")
}
