//! Why an event is or is not due now: one sentence for every case. Pure.

use std::fmt;
use std::time::Duration;

use super::filter::Status;

/// What keeps an event from being sent now, if anything does.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Nothing: the next tick takes it.
    Due,
    /// Another session holds its row.
    Sending,
    /// WAITING, and younger than `min_age`.
    Young(Moment),
    /// Its last attempt failed, and the next is due later.
    BackingOff(Moment),
    /// Its due time is to come.
    Scheduled(Moment),
    /// An event of its key comes first.
    HeldBack {
        /// That event's row.
        id: i64,
        /// Its status, as stored.
        status: String,
        /// Why it is not sent itself.
        because: Box<Standing>,
    },
    /// It is not sent any more; the next tick says so in its row.
    Ending {
        /// What it becomes.
        status: Status,
        /// Why.
        because: String,
    },
    /// DEAD: a person decides.
    Dead {
        /// The row, for the commands to type.
        id: i64,
        /// Whether it holds its key back.
        blocks_key: bool,
    },
    /// PUBLISHED, EXPIRED or SKIPPED.
    Finished(Status),
    /// A status that is none of ours: it is left alone.
    Foreign(String),
}

/// A moment to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// In UTC.
    pub at: String,
    /// How long until then; none when it never comes.
    pub left: Option<Duration>,
}

/// What the table says about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    pub(super) id: i64,
    pub(super) status: String,
    pub(super) keyed: bool,
    pub(super) expired: bool,
    pub(super) over_max_age: bool,
    pub(super) at_limit: bool,
    /// Its due time, when that is to come.
    pub(super) later: Option<Moment>,
    /// When it is old enough, when that is to come.
    pub(super) young: Option<Moment>,
    pub(super) unconfirmed: bool,
    /// An operator made it due, at once or later.
    pub(super) by_hand: bool,
    pub(super) locked: bool,
    pub(super) dead_blocks: bool,
}

impl Standing {
    /// What the row alone says; events of its key aside.
    pub(super) fn of(facts: &Facts) -> Self {
        let ending = |status, because: &str| Self::Ending { status, because: because.into() };
        let status = match Status::parse(&facts.status) {
            Some(status) if status.name() == facts.status => status,
            _ => return Self::Foreign(facts.status.clone()),
        };
        match status {
            Status::Published | Status::Expired | Status::Skipped => return Self::Finished(status),
            Status::Dead => {
                return Self::Dead { id: facts.id, blocks_key: facts.keyed && facts.dead_blocks };
            }
            Status::Waiting | Status::Failed => {}
        }
        if facts.locked {
            return Self::Sending;
        }
        if facts.expired {
            return ending(Status::Expired, "its expired_at has passed");
        }
        if status == Status::Waiting && facts.over_max_age {
            return ending(Status::Expired, "it is older than max_age");
        }
        if status == Status::Failed && facts.at_limit {
            return ending(Status::Dead, "it was refused max_failures times");
        }
        match (&facts.later, &facts.young) {
            (Some(moment), _) if (status == Status::Failed && !facts.by_hand) || facts.unconfirmed => {
                Self::BackingOff(moment.clone())
            }
            (Some(moment), _) => Self::Scheduled(moment.clone()),
            (None, Some(moment)) if status == Status::Waiting => Self::Young(moment.clone()),
            _ => Self::Due,
        }
    }

    /// Whether it may be sent now.
    pub fn is_due(&self) -> bool {
        matches!(self, Self::Due)
    }

    /// Whether it keeps the events of its key that follow from being sent, until its time comes or a person decides.
    pub fn blocks_key(&self) -> bool {
        matches!(self, Self::BackingOff(_) | Self::Scheduled(_) | Self::Dead { blocks_key: true, .. })
    }

    /// One word for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Sending => "sending",
            Self::Young(_) => "young",
            Self::BackingOff(_) => "backing_off",
            Self::Scheduled(_) => "scheduled",
            Self::HeldBack { .. } => "held_back",
            Self::Ending { .. } => "ending",
            Self::Dead { .. } => "dead",
            Self::Finished(_) => "finished",
            Self::Foreign(_) => "foreign",
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Due => f.write_str("due now: the next tick takes it"),
            Self::Sending => f.write_str("being sent right now: another session holds its row"),
            Self::Young(moment) => write!(f, "not due: younger than min_age, due {moment}"),
            Self::BackingOff(moment) => write!(f, "not due: backs off after its last attempt, due {moment}"),
            Self::Scheduled(moment) => write!(f, "not due: its available_at is to come, due {moment}"),
            Self::HeldBack { id, status, because } => {
                write!(f, "held back by event {id} of its key ({status}), which is {because}")
            }
            Self::Ending { status, because } => {
                write!(f, "not sent any more: {because}; the next tick marks it {status}")
            }
            Self::Dead { id, blocks_key } => {
                let blocks = if *blocks_key { " and holds its key back" } else { "" };
                write!(
                    f,
                    "dead{blocks}: mend the cause, then outboxd retry --id {id}, or outboxd skip --id {id} to \
                     give it up"
                )
            }
            Self::Finished(status) => write!(f, "finished: {status}"),
            Self::Foreign(status) => write!(f, "left alone: its status {status:?} is none of outboxd's"),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.left {
            Some(left) => {
                let left = Duration::from_secs(left.as_secs());
                write!(f, "at {} (in {})", self.at, humantime::format_duration(left))
            }
            None => write!(f, "at {}", self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(status: &str) -> Facts {
        Facts {
            id: 7,
            status: status.into(),
            keyed: false,
            expired: false,
            over_max_age: false,
            at_limit: false,
            later: None,
            young: None,
            unconfirmed: false,
            by_hand: false,
            locked: false,
            dead_blocks: true,
        }
    }

    #[test]
    fn every_case_has_its_sentence() {
        let moment = || Some(Moment { at: "T".into(), left: Some(Duration::from_millis(90_500)) });
        let never = || Some(Moment { at: "infinity".into(), left: None });
        let cases = [
            (facts("WAITING"), "due now"),
            (facts("FAILED"), "due now"),
            (Facts { locked: true, expired: true, ..facts("WAITING") }, "being sent right now"),
            (Facts { young: moment(), ..facts("WAITING") }, "younger than min_age, due at T (in 1m 30s)"),
            (Facts { young: moment(), ..facts("FAILED") }, "due now"),
            (Facts { later: moment(), ..facts("FAILED") }, "backs off after its last attempt, due at T"),
            (Facts { later: moment(), by_hand: true, ..facts("FAILED") }, "its available_at is to come"),
            (Facts { later: moment(), unconfirmed: true, ..facts("WAITING") }, "backs off"),
            (Facts { later: never(), ..facts("WAITING") }, "its available_at is to come, due at infinity"),
            (Facts { expired: true, later: moment(), ..facts("FAILED") }, "the next tick marks it EXPIRED"),
            (
                Facts { over_max_age: true, ..facts("WAITING") },
                "older than max_age; the next tick marks it EXPIRED",
            ),
            (Facts { over_max_age: true, ..facts("FAILED") }, "due now"),
            (Facts { at_limit: true, later: moment(), ..facts("FAILED") }, "the next tick marks it DEAD"),
            (Facts { at_limit: true, ..facts("WAITING") }, "due now"),
            (facts("DEAD"), "dead: mend the cause, then outboxd retry --id 7"),
            (Facts { keyed: true, ..facts("DEAD") }, "dead and holds its key back"),
            (Facts { keyed: true, dead_blocks: false, ..facts("DEAD") }, "dead: mend"),
            (Facts { expired: true, ..facts("PUBLISHED") }, "finished: PUBLISHED"),
            (facts("SKIPPED"), "finished: SKIPPED"),
            (facts("NEW"), "none of outboxd's"),
            (facts("waiting"), "none of outboxd's"),
        ];
        for (facts, expected) in cases {
            let sentence = Standing::of(&facts).to_string();
            assert!(sentence.contains(expected), "{facts:?}: {sentence}");
        }
    }
}
