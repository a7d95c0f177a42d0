//! A blocking relay for the transactional outbox: committed events from a PostgreSQL table to RabbitMQ.
//!
//! # What it guarantees
//! An application writes its change and an event in one transaction. Every event that is committed is published
//! *at least once*, and none that is rolled back ever is. An event becomes PUBLISHED only by the broker's confirm
//! for it, and only if the broker routed it to a queue (unless its route accepts that there is none). Whatever
//! fails, in whatever state, the event is due again; what it costs is a possible second copy, with the same
//! message id.
//!
//! # First steps
//! `outboxd init` makes the table, once; [`outbox::init`] does the same. Then an application
//!
//! **1. appends** an event in the transaction that makes its change, with [`append`] or [`append_all`]. The client whose
//! transactions they take is there as `outboxd::postgres`, in the version that fits; a [`Writer`] writes to a table of
//! another name.
//! ```no_run
//! use outboxd::NewEvent;
//! use outboxd::postgres::{Client, NoTls};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = Client::connect("postgres://shop@localhost/shop", NoTls)?;
//! let mut tx = client.transaction()?;
//! tx.execute("update orders set status = 'paid' where id = $1", &[&7_i64])?;
//! let event = NewEvent::new("order.paid").payload(json!({ "order": 7 })).ordering_key("order-7");
//! let event_id = outboxd::append(&mut tx, &event)?;
//! tx.commit()?;
//! # Ok(())
//! # }
//! ```
//!
//! **2. publishes it at once**, if it likes, right after the commit: stage 1. Whatever the [answer](relay::Answer), the
//! change is committed, and what was not published is left to the relay.
//! ```no_run
//! use std::time::Duration;
//! use outboxd::config::Config;
//! use outboxd::relay::{Answer, Stage1};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let event_id = String::new();
//! let config = Config::new("postgres://shop@localhost/shop", "amqp://shop@localhost")?;
//! // Once for the whole application. Clones are cheap, and may be used by any thread.
//! let stage1 = Stage1::start(config)?;
//! for answer in stage1.publish_now(&[&event_id], Duration::from_secs(2)) {
//!     if let Answer::Refused(reason) = answer {
//!         eprintln!("no queue wants it: {reason}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **3. has the relay run**, as a program (`outboxd run`, `outboxd once`) or on a thread of the application's own. It sends
//! what stage 1 left, because it failed, because it was slow, or because the process died in between. An application
//! without stage 1 can have each commit wake it: [`Config::listening`](config::Config::listening).
//! ```no_run
//! use std::time::Duration;
//! use outboxd::config::Config;
//! use outboxd::relay::{Relay, Stopped};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::new("postgres://shop@localhost/shop", "amqp://shop@localhost")?;
//! config.interval = Duration::from_secs(5); // how often it looks; the default is 30 s
//! let relay = Relay::start(config)?;
//! // Until the application ends:
//! if let Stopped::Panicked(reason) = relay.stop(Duration::from_secs(10)) {
//!     eprintln!("the relay had ended: {reason}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **4. handles each event once** where it consumes them, although it may receive it twice, with the [`inbox`]: its table
//! is made by `outboxd init --inbox` or [`inbox::init`], in the consumer's database.
//! ```no_run
//! use outboxd::inbox;
//! use outboxd::postgres::{Client, NoTls};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let message_id = "01JD5Z6Z3Y1Q2W3E4R5T6Y7V8W";
//! let mut client = Client::connect("postgres://billing@localhost/billing", NoTls)?;
//! let mut tx = client.transaction()?;
//! if inbox::first_time(&mut tx, "billing", message_id)? {
//!     tx.execute("insert into invoices (order_id) values ($1)", &[&7_i64])?;
//! }
//! tx.commit()?;
//! // Only now acknowledge the message.
//! # Ok(())
//! # }
//! ```
//!
//! The examples `embed`, `background` and `consumer` do all of this, and `make servers` starts servers to run them on.
//!
//! # How the pieces fit
//! ```text
//!   your transaction ──► event_outbox ◄──── relay, at every beat: Relay ───┐
//!          │                   ▲                                           ├──► RabbitMQ ──► consumer, inbox
//!          └─ after commit ────┴─────────── at once: Stage1 ───────────────┘
//! ```
//! Stage 1 and the relay do the same thing: they claim rows under their row locks, publish, and write what became of
//! them once the broker has spoken. So they need not know of each other, there may be any number of both, in one process
//! or many, and whatever one of them holds when it dies is free at once. Each has its own database sessions and its own
//! connection to the broker. With stage 1, leave `min_age` ([`config::Claim::min_age`]) above the time that it takes, so
//! that the relay does not come first; without it, set it to zero.
//!
//! | a host | uses |
//! |---|---|
//! | that has nothing else to do | [`Relay::run`](relay::Relay::run), until a [`Stop`](relay::Stop) is requested |
//! | with other things to do | [`Relay::start`](relay::Relay::start): a thread, and a [handle](relay::RelayHandle) to watch, nudge and stop it; [`observed_by`](relay::Relay::observed_by) for its metrics |
//! | with a loop of its own | [`Relay::tick`](relay::Relay::tick) in each round; the relay keeps its sessions in between; [`WakeUp`](relay::WakeUp) to be woken by commits |
//! | that runs, works off what is due, and ends | [`Relay::drain`](relay::Relay::drain), which also waits for a server that comes back |
//!
//! # What the host must do
//! * **Give it a thread.** All of it blocks. [`Relay::start`](relay::Relay::start) and
//!   [`Stage1::start`](relay::Stage1::start) make their own threads and return at once; everything else works on the
//!   caller's.
//! * **In an async runtime, keep off its threads.** Nothing that speaks to a server on threads of ours panics there, but
//!   a worker of the runtime is held for as long as it takes: call it from `spawn_blocking` or its like.
//!   [`append`], [`append_all`], [`inbox::first_time`] and [`inbox::purge`] *must* be called so: they use your
//!   `postgres` client, which panics in an async function.
//! * **Build with `panic = "unwind"`**, the default. The broker client's I/O thread can panic when the broker closes a
//!   connection at an unlucky moment; unwinding ends that connection and nothing else, aborting would end the process. A
//!   panic of ours is caught at the end of its thread and told: by [`RelayHandle::status`](relay::RelayHandle::status)
//!   and the log, and by stage 1 as [`Answer::Left`](relay::Answer::Left). The process's panic hook hears of either; one
//!   that ends the process ends it then, too.
//! * **Have a `log` backend**, of any kind. A refusal is one line, those that repeat it are a number a minute, and so is
//!   what a running relay moves; trouble with a server is a line as it comes and goes. A record's text is whole, and its
//!   `kv` holds the parts (`msg`, `type`, `count`, ...). None holds a URL, a password or a payload; but silence the
//!   target `amiquip`, whose own lines can. Without a backend none is written.
//! * **Look at [`RelayHandle::status`](relay::RelayHandle::status)**, or have it in a health check: a relay that has
//!   ended by a panic is not started again by itself.
//! * **Stop it on shutdown**, with as much time as `grace` ([`config::Config::grace`], 10 s), if you want to know that it
//!   has ended. No other end loses anything: a dropped handle waits two seconds at most, a killed process not at all,
//!   and what was claimed is due again. What had been sent without word of it arrives twice.
//! * **Roll back after an error** of [`append`] or [`inbox::first_time`]. Most have ended the transaction in the database,
//!   and the client's `commit` says `Ok` all the same.
//!
//! It installs no signal handler; environment variables and the configuration file are the binary's. The one thing that
//! is shared by all of a process is the generator of event ids, so that they rise whichever thread asks.
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
//! # Inside
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

pub mod check;
mod clock;
pub mod config;
pub mod confirm;
pub mod error;
pub mod event;
pub mod message;
#[cfg(feature = "mutants")]
mod mutants;
mod new_event;
pub mod outbox;
pub mod policy;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod properties;
pub mod publisher;
pub mod relay;
pub mod route;
#[cfg(test)]
mod simulated;

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` puts known defects into the relay: it is for debug builds alone");

pub use event::NewEvent;
pub use outbox::{Writer, append, append_all, inbox, postgres};
