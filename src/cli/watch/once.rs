//! What a run of `once` leaves behind for the textfile collector.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use outboxd::event::Tally;

use super::gather::Figures;
use super::text::{self, LastRun};
use super::{file, names};
use crate::cli::exit::Exit;
use crate::cli::print;

/// The metrics file, and what is known for it so far.
pub(crate) struct Leaving {
    path: Option<PathBuf>,
    began: Instant,
    tally: Tally,
    succeeded: bool,
    figures: Option<Figures>,
}

impl Leaving {
    /// A run begins. Without a path, nothing is noted and nothing left.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, began: Instant::now(), tally: Tally::default(), succeeded: false, figures: None }
    }

    /// Whether anybody wants to know what the table holds.
    pub(crate) fn is_wanted(&self) -> bool {
        self.path.is_some()
    }

    /// Takes in how the run went, and what the table holds, as far as that is known.
    pub(crate) fn note(&mut self, tally: Tally, succeeded: bool, figures: Option<Figures>) {
        (self.tally, self.succeeded, self.figures) = (tally, succeeded, figures);
    }

    /// The run is over. That the file cannot be written is said, and changes nothing about how the run went.
    pub(crate) fn write(self, exit: Exit) {
        let Some(path) = &self.path else { return };
        let ended = SystemTime::now();
        let last_success = match self.succeeded {
            true => Some(text::unix(ended)),
            false => file::last_value(path, names::LAST_SUCCESS.name),
        };
        let run = LastRun {
            ended,
            took: self.began.elapsed(),
            tally: self.tally,
            succeeded: self.succeeded,
            exit_code: exit.code(),
            last_success,
            figures: self.figures,
        };
        if let Err(error) = file::write(path, &text::of_once(&run)) {
            print::error(error);
        }
    }
}
