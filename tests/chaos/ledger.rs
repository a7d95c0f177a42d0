//! The ledger: what was attempted, committed and received, and what went wrong when. A file outside the systems under
//! fault, one line of JSON per entry, only ever appended to, and on disk before anything is built on it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970, by this machine's clock, which is also the servers'.
pub type Millis = u64;

/// One line.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Entry {
    /// An event is about to be committed, in this transaction.
    Attempt(Attempt),
    /// How a transaction ended, as far as its writer knows.
    Ended { tx: u64, outcome: Outcome, at: Millis },
    /// A message came out of a queue; noted before it is acknowledged.
    Receipt(Receipt),
    /// Something that was done to the system, noted when it was over.
    Fault(Fault),
    /// What a relay's process used at a moment.
    Sample(Sample),
    /// A relay's process, noted when it had ended.
    Life(Life),
}

/// An event, and what its message has to be.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Attempt {
    pub tx: u64,
    pub event_id: String,
    pub fate: Fate,
    pub key: Option<String>,
    /// Counts up with each committed event of its key.
    pub n: u64,
    pub event_type: String,
    pub exchange: String,
    pub routing_key: String,
    /// Where it arrives, if it does.
    pub queue: String,
    pub sha256: String,
    pub at: Millis,
}

/// What an event is made for.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// To arrive. Nothing that is done to the system is a reason to refuse it.
    Kept,
    /// To arrive. Its exchange comes and goes, so it may be refused meanwhile.
    Brittle,
    /// To be published. Its queue comes and goes, with what is in it.
    Volatile,
    /// To be published to nobody: its route says that none is fine.
    Nobody,
    /// To be refused by the broker: no queue, no exchange, or a full queue.
    Refused,
    /// To be refused by the relay: no message can carry it.
    Unsendable,
    /// Due in an hour, and given up by an operator before that.
    GivenUp,
    /// Its time was over when it was written.
    Over,
    /// Its time is over soon: whether it arrives is chance.
    Brief,
}

/// How a transaction ended.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    RolledBack,
    /// The connection ended under the commit.
    Unknown,
}

/// A message as it came.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Receipt {
    pub queue: String,
    pub event_id: String,
    pub event_type: String,
    pub exchange: String,
    pub routing_key: String,
    pub sha256: String,
    /// From its headers.
    pub key: Option<String>,
    pub n: u64,
    /// The broker handed it out before, and says so: not a copy of the relay's making.
    pub redelivered: bool,
    pub at: Millis,
}

/// A fault, and whom it struck.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Fault {
    pub kind: String,
    /// The number of the relay that it is about; none where it is about all of them.
    pub relay: Option<usize>,
    pub start: Millis,
    /// When the system was whole again, as far as this fault is concerned.
    pub healed: Millis,
}

/// One look at a relay's process and at the proxies before it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Sample {
    pub relay: usize,
    pub pid: u32,
    pub at: Millis,
    pub rss_kib: u64,
    pub threads: u64,
    pub files: u64,
    /// How many connections to the broker it holds.
    pub broker_held: u64,
    /// How many connections the proxies before broker and database have taken so far.
    pub broker_opened: u64,
    pub database_opened: u64,
    /// Whether all faults were over.
    pub healed: bool,
}

/// The life of a relay's process.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Life {
    pub relay: usize,
    pub pid: u32,
    pub from: Millis,
    pub to: Millis,
    pub end: End,
    /// The lines and the bytes of its log.
    pub log_lines: u64,
    pub log_bytes: u64,
}

/// How a relay's process ended.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum End {
    /// Killed on purpose.
    Killed,
    /// By a request, after so many milliseconds, with this exit code.
    Asked { took_ms: u64, code: Option<i32> },
    /// A request to end was not followed within so many milliseconds.
    Stuck { waited_ms: u64 },
    /// By itself.
    Unasked { code: Option<i32>, signal: Option<i32> },
    /// It was to end by itself, as `once` does.
    Done { code: Option<i32> },
}

/// The file, for all threads.
pub struct Ledger {
    path: PathBuf,
    file: Mutex<File>,
}

impl Ledger {
    /// A new file.
    pub fn create(path: &Path) -> Ledger {
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = file.unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
        Ledger { path: path.to_owned(), file: Mutex::new(file) }
    }

    /// Appends these and waits until they are on disk.
    pub fn append(&self, entries: &[Entry]) {
        let mut text = String::new();
        for entry in entries {
            text += &serde_json::to_string(entry).expect("an entry is JSON");
            text.push('\n');
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = file.write_all(text.as_bytes());
        let file_to_sync = file.try_clone();
        // Others may append meanwhile: what is behind ours in the file harms nobody.
        drop(file);
        let written = written.and_then(|()| file_to_sync?.sync_data());
        written.unwrap_or_else(|error| panic!("the ledger cannot be written: {error}"));
    }

    /// Everything so far.
    pub fn read(&self) -> Vec<Entry> {
        let lines = BufReader::new(File::open(&self.path).expect("the ledger")).lines();
        let entries = lines.map(|line| -> io::Result<Entry> { Ok(serde_json::from_str(&line?)?) });
        entries.collect::<io::Result<_>>().expect("the ledger's lines")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The time now.
pub fn now() -> Millis {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_millis() as Millis)
}
