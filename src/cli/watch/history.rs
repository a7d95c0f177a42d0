//! The last hour, as samples in a ring of bounded size. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Between two samples.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(15);

/// How many samples are kept: an hour.
pub(super) const SAMPLES_MAX: usize = 240;

/// How things stood at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) at: Instant,
    /// Since the start.
    pub(super) published: u64,
    /// Of the oldest due event; none where that is not known.
    pub(super) age: Option<Duration>,
    /// Events that are due; none where that is not known.
    pub(super) due: Option<u64>,
}

/// The samples, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History(VecDeque<Sample>);

impl History {
    pub(super) fn push(&mut self, sample: Sample) {
        if self.0.len() >= SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// What `read` makes of each sample, with its age at `now` in seconds.
    pub(super) fn points(
        &self,
        now: Instant,
        read: impl Fn(&Sample) -> Option<f64>,
    ) -> Vec<(f64, Option<f64>)> {
        let ago = |at: Instant| now.saturating_duration_since(at).as_secs_f64();
        self.0.iter().map(|it| (ago(it.at), read(it))).collect()
    }

    /// How fast what `read` counts has grown between each two samples, per second, with the second one's age at `now` in
    /// seconds.
    pub(super) fn rates(&self, now: Instant, read: impl Fn(&Sample) -> u64) -> Vec<(f64, Option<f64>)> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs
            .map(|(before, after)| {
                let time = after.at.saturating_duration_since(before.at).as_secs_f64();
                #[allow(clippy::cast_precision_loss, reason = "a plot is not that precise")]
                let grown = read(after).saturating_sub(read(before)) as f64;
                let ago = now.saturating_duration_since(after.at).as_secs_f64();
                (ago, (time > 0.0).then(|| grown / time))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let (mut history, start) = (History::default(), Instant::now());
        let mut at = start;
        for number in 0..1000_u64 {
            at = start + SAMPLE_EVERY * u32::try_from(number).unwrap();
            let due = (number % 2 == 0).then_some(number);
            history.push(Sample { at, published: number * 150, age: None, due });
        }
        let rates = history.rates(at, |it| it.published);
        assert_eq!(rates.len(), SAMPLES_MAX - 1);
        assert!(rates.iter().all(|(_, rate)| *rate == Some(10.0)));
        assert_eq!(rates.first().map(|it| it.0), Some(15.0 * 238.0));
        let points = history.points(at, |it| it.due.map(|due| due as f64));
        assert_eq!((points.len(), points.last()), (SAMPLES_MAX, Some(&(0.0, None))));
        assert_eq!(points[SAMPLES_MAX - 2], (15.0, Some(998.0)));
    }
}
