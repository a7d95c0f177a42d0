//! The run itself, and what is looked at when it is over, on a thread of its own: whoever waits for it can have a deadline,
//! also where a server does not answer.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use outboxd::config::Config;
use outboxd::error::{Kind, Result, Server};
use outboxd::event::Tally;
use outboxd::outbox::{Backlog, Outbox};
use outboxd::relay::{Happening, Relay, Stop, Tick, Trouble};

use super::Once;
use crate::cli::progress::Count;
use crate::cli::watch::Figures;

/// What is known of a run.
#[derive(Default)]
pub(super) struct Run {
    /// What became of events, as far as that is written.
    pub(super) tally: Tally,
    /// How it ended; none where it has not.
    pub(super) tick: Option<Tick>,
    pub(super) took: Duration,
    /// What keeps a server from being used.
    pub(super) trouble: Option<Trouble>,
    /// What the unfinished events wait for, where that was asked.
    pub(super) backlog: Option<Result<Backlog>>,
    pub(super) figures: Option<Figures>,
    /// It was not waited for any longer.
    pub(super) is_late: bool,
}

/// What the thread tells, in this order, as far as it comes.
enum News {
    Settled(Tally),
    Ticked(Tick, Duration),
    Trouble(Option<Trouble>),
    Backlog(Result<Backlog>),
    Figures(Figures),
}

/// Relays within the bounds that are asked for, and looks at what is left. Where there is a time, it is waited for `grace`
/// longer and no more: what is still in flight then is due again, as if the process had died.
///
/// # Errors
/// The operating system gives no thread.
pub(super) fn run(
    config: Config,
    asked: &Once,
    stop: Stop,
    count: Option<Count>,
    wants_figures: bool,
) -> std::io::Result<Run> {
    let (tell, news) = channel();
    let (began, bounds, grace) = (Instant::now(), asked.clone(), config.grace);
    thread::Builder::new()
        .name("outboxd-once".into())
        .spawn(move || relay(config, &bounds, &stop, count, wants_figures, &tell))?;
    let until = asked.max_duration.and_then(|limit| began.checked_add(limit.saturating_add(grace)));
    let mut run = Run::default();
    loop {
        match next(&news, until) {
            Ok(news) => run.note(news),
            // All is told; or it has panicked, which is logged.
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                run.is_late = true;
                break;
            }
        }
    }
    if run.tick.is_none() {
        run.took = began.elapsed();
    }
    Ok(run)
}

fn next(news: &Receiver<News>, until: Option<Instant>) -> std::result::Result<News, RecvTimeoutError> {
    match until {
        Some(until) => news.recv_timeout(until.saturating_duration_since(Instant::now())),
        None => news.recv().map_err(RecvTimeoutError::from),
    }
}

impl Run {
    fn note(&mut self, news: News) {
        match news {
            News::Settled(tally) => self.tally += tally,
            News::Ticked(tick, took) => {
                (self.tally, self.took, self.trouble) = (tick.tally, took, tick.trouble.clone());
                self.tick = Some(tick);
            }
            News::Trouble(trouble) => self.trouble = trouble,
            News::Backlog(backlog) => self.backlog = Some(backlog),
            News::Figures(figures) => self.figures = Some(figures),
        }
    }
}

/// Whether a tick had nothing to do.
pub(super) fn is_idle(tick: &Tick) -> bool {
    tick.tally.claimed == 0 && tick.trouble.is_none() && !tick.stopped && !tick.more
}

fn relay(
    config: Config,
    asked: &Once,
    stop: &Stop,
    count: Option<Count>,
    wants_figures: bool,
    tell: &Sender<News>,
) {
    // Whoever no longer listens needs nothing any more.
    let say = |news: News| drop(tell.send(news));
    let settled = tell.clone();
    let mut relay = Relay::new(config).observed_by(move |happening| {
        if let Happening::Settled { tally, .. } = happening {
            if let Some(count) = &count {
                count.add(tally.claimed.saturating_sub(tally.unconfirmed + tally.released));
            }
            let _ = settled.send(News::Settled(*tally));
        }
    });
    let began = Instant::now();
    let tick = relay.tick_within(stop, asked.max_duration, asked.max_events);
    let (is_idle, is_bounded) = (is_idle(&tick), tick.more);
    let mut trouble = tick.trouble.clone();
    say(News::Ticked(tick, began.elapsed()));
    if is_idle {
        trouble = relay.probe_broker();
        say(News::Trouble(trouble.clone()));
    }
    // Whether the last event that it might take was the last one there was, nobody has looked.
    let looked = (is_idle || is_bounded && trouble.is_none()).then(|| relay.outbox().backlog());
    if let Some(backlog) = &looked {
        say(News::Backlog(backlog.clone()));
    }
    if trouble.is_none() {
        advise(relay.outbox());
    }
    if wants_figures && may_look(trouble.as_ref()) {
        match Figures::gather(relay.outbox(), looked) {
            Ok((figures, _)) => say(News::Figures(figures)),
            Err(error) => log::warn!("no backlog for metrics_file: {error}"),
        }
    }
    relay.close();
}

/// Whether the table can be looked at: unless it is what was in trouble.
fn may_look(trouble: Option<&Trouble>) -> bool {
    let broker = [Kind::Unavailable(Server::Broker), Kind::Denied(Server::Broker)];
    trouble.is_none_or(|it| broker.contains(&it.error.kind()))
}

/// Warns of what slows the relay down or leads it astray. What it could not look at is no trouble of this run.
fn advise(outbox: &mut Outbox) {
    match outbox.advice() {
        Ok(advice) => advice.iter().for_each(|it| log::warn!("{it}")),
        Err(error) => log::debug!("{error}"),
    }
}
