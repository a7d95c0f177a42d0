//! One direction of a connection: what waits in it, and what is to be done next under the faults of the moment.
//!
//! No sockets, no threads, no clock of its own.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The most bytes that one read takes, and what a direction without latency holds.
pub const CHUNK: usize = 64 * 1024;

/// The most bytes of one direction of a connection that wait for their time.
const QUEUE_MAX: usize = 64 * 1024 * 1024;

/// What is wrong with one direction.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub delay: Duration,
    pub jitter: Duration,
    pub swallow: bool,
    pub stall: bool,
    pub bandwidth: Option<u64>,
    pub slice: Option<(usize, Duration)>,
    pub cut_after: Option<u64>,
}

/// What one direction of a connection holds.
#[derive(Default)]
pub struct Pipe {
    queue: VecDeque<Item>,
    /// The bytes in the queue.
    queued: usize,
    /// Not before this time may more be written.
    pub free_at: Option<Instant>,
    /// Whether the end has been forwarded.
    pub closed: bool,
}

struct Item {
    since: Instant,
    /// Which part of the jitter is this one's, from 0 to 1.
    share: f64,
    content: Content,
}

pub enum Content {
    /// Bytes, and how many of them have been forwarded.
    Data(Vec<u8>, usize),
    /// The sender has ended this direction.
    Close,
    /// The sender has reset the connection.
    Reset,
}

/// What a writer does next.
pub enum Step {
    /// Wait for a change, for so long at most.
    Wait(Option<Duration>),
    Forward(Vec<u8>),
    /// Forward these, then reset the connection.
    Cut(Vec<u8>),
    Close,
    Reset,
}

impl Pipe {
    /// Puts something behind what waits already.
    pub fn push(&mut self, content: Content, now: Instant) {
        match &content {
            Content::Data(data, _) => self.queued += data.len(),
            // A dead receiver fails every write, but it is dead once.
            Content::Reset if matches!(self.queue.back(), Some(Item { content: Content::Reset, .. })) => {
                return;
            }
            Content::Close | Content::Reset => {}
        }
        // 53 bits are what a double holds.
        let share = (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64;
        self.queue.push_back(Item { since: now, share, content });
    }

    /// Whether more may be read.
    pub fn has_room(&self, faults: &Faults) -> bool {
        !faults.stall && self.queued < faults.room()
    }

    /// What the writer has to do now. It takes out what it gives.
    pub fn step(&mut self, faults: &mut Faults, now: Instant) -> Step {
        loop {
            let Some(item) = self.queue.front_mut().filter(|_| !faults.stall) else {
                return Step::Wait(None);
            };
            let due = item.since + faults.delay + faults.jitter.mul_f64(item.share);
            let due = self.free_at.map_or(due, |free_at| free_at.max(due));
            if due > now {
                return Step::Wait(Some(due - now));
            }
            let Content::Data(data, done) = &mut item.content else {
                if faults.swallow {
                    return Step::Wait(None);
                }
                let reset = matches!(item.content, Content::Reset);
                self.queue.pop_front();
                self.closed = true;
                return if reset { Step::Reset } else { Step::Close };
            };
            let left = data.len() - *done;
            let count = if faults.swallow { left } else { faults.piece(left) };
            let piece = data[*done..*done + count].to_vec();
            *done += count;
            self.queued -= count;
            if count == left {
                self.queue.pop_front();
            }
            if faults.swallow {
                continue;
            }
            self.free_at = faults.pause(count).map(|pause| now + pause);
            faults.cut_after = faults.cut_after.map(|bytes| bytes - count as u64);
            if faults.cut_after == Some(0) {
                faults.cut_after = None;
                return Step::Cut(piece);
            }
            return Step::Forward(piece);
        }
    }
}

impl Faults {
    /// How many bytes a direction may hold before it stops reading.
    fn room(&self) -> usize {
        let delay = self.delay + self.jitter;
        match self.bandwidth {
            _ if delay.is_zero() => CHUNK,
            None => QUEUE_MAX,
            // What a link with this bandwidth and latency holds.
            Some(bandwidth) => CHUNK.saturating_add((bandwidth as f64 * delay.as_secs_f64()) as usize),
        }
        .min(QUEUE_MAX)
    }

    /// How many of so many bytes may go out at once.
    fn piece(&self, bytes: usize) -> usize {
        // At a limited bandwidth, twenty pieces a second.
        let paced = self.bandwidth.map_or(usize::MAX, |bandwidth| (bandwidth as usize / 20).max(1));
        let sliced = self.slice.map_or(usize::MAX, |(bytes, _)| bytes);
        let cut = self.cut_after.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        bytes.min(paced).min(sliced).min(cut)
    }

    /// How long to wait after a piece.
    fn pause(&self, bytes: usize) -> Option<Duration> {
        let paced = self.bandwidth.map(|bandwidth| Duration::from_secs_f64(bytes as f64 / bandwidth as f64));
        paced.max(self.slice.map(|(_, pause)| pause))
    }
}
