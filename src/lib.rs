//! A blocking relay for the transactional outbox: committed events from a PostgreSQL table to RabbitMQ.
//!
//! # What it guarantees
//! An application writes its change and an event in one transaction. Every event that is committed is published
//! *at least once*, and none that is rolled back ever is. An event becomes PUBLISHED only by the broker's confirm
//! for it, and only if the broker routed it to a queue (unless its route accepts that there is none). Whatever
//! fails, in whatever state, the event is due again; what it costs is a possible second copy, with the same
//! message id.
//!
//! # How the pieces fit
//! ```text
//!   config ──► relay ──► outbox ──► route, message ──► publisher ──► confirm
//!                │          ▲                                          │
//!                │          └───────────────── policy ◄────────────────┘
//!                └─ orders the effects; everything else decides or does, never both
//! ```
//! Reading order: [`relay`] is the main path. [`outbox`] claims rows under their row locks and writes what became
//! of them. [`message`] makes a message of an event, by the routes in [`route`]. [`publisher`] sends messages on a
//! channel per worker in confirm mode, and [`confirm`] keeps the ledger of what the broker said. [`policy`] decides
//! what an outcome makes of a row.
//!
//! # The life of an event
//! ```text
//!                      confirmed
//!   WAITING ───────────────────────────────► PUBLISHED
//!    │  │ ▲ sent, no confirm: stays as it is     ▲
//!    │  └─┘                                      │ confirmed
//!    │ refused           due again after a back-off
//!    ├──────────────► FAILED ────────────────────┤
//!    │                  │ refused max_failures times
//!    │ unsendable       ▼
//!    ├──────────────► DEAD      waits for an operator: FAILED again, with no failures counted, or SKIPPED
//!    │ its time passed
//!    └──────────────► EXPIRED   (FAILED events too)
//! ```
//! Events with one ordering key leave in the order of their ids, one at a time: what does not go through holds back
//! what follows it. WAITING, FAILED, and DEAD (while [`config::OnDead::Block`] is chosen) count as not gone through.
//!
//! By hand, all of it in [`outbox::Outbox`]: `retry` makes DEAD, FAILED, EXPIRED and PUBLISHED events due again, `skip`
//! makes unfinished ones SKIPPED, and `purge`, which `run` does too where `retention` is set, deletes finished ones.
//!
//! # First steps
//! ```no_run
//! use outboxd::config::Config;
//! use outboxd::relay::{Relay, Stop};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new("postgres://app@localhost/app", "amqp://localhost")?;
//! outboxd::outbox::init(&config.database)?;
//! let stop = Stop::new();
//! // Another thread ends it with `stop.request()`.
//! let mut relay = Relay::new(config);
//! let total = relay.run(&stop);
//! relay.close();
//! println!("{total}");
//! # Ok(())
//! # }
//! ```
//!
//! # Writing and consuming events
//! [`append`] and [`append_all`] write [events](NewEvent) in the caller's own transaction, of the client that is there
//! as [`postgres`]; a [`Writer`] does so for a table of another name. [`inbox`] is the consumer's side: it tells a first
//! delivery from a copy.
//!
//! # What the host must do
//! Call it from a thread of its own: it blocks. Or have [`relay::Relay::start`] make that thread, and
//! [`relay::Stage1`] publish at once what was just committed. Build with `panic = "unwind"`: the broker client's I/O
//! thread can panic when the broker closes a connection at an unlucky moment, which ends that connection and nothing
//! else.

pub mod config;
pub mod confirm;
pub mod error;
pub mod event;
pub mod message;
mod new_event;
pub mod outbox;
pub mod policy;
pub mod publisher;
pub mod relay;
pub mod route;

pub use event::NewEvent;
pub use outbox::{Writer, append, append_all, inbox, postgres};
