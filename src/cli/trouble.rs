//! What `status` warns of, for people and for programs: blocked keys, and snapshots that hold vacuum back.

use std::time::Duration;

use outboxd::error::Result;
use outboxd::outbox::{
    BlockedKey, BlockedKeys, DEPTH_MAX, KEYS_MAX, OldSnapshot, Outbox, SNAPSHOT_AGE, SNAPSHOT_TRANSACTIONS,
};
use serde_json::{Value, json};

use super::print;

/// What was seen. An error says why it could not be looked at.
pub(super) struct Trouble {
    blocked: Result<BlockedKeys>,
    snapshots: Result<Vec<OldSnapshot>>,
    advice: Result<Vec<String>>,
}

pub(super) fn look(outbox: &mut Outbox) -> Trouble {
    Trouble {
        blocked: outbox.blocked_keys(),
        snapshots: outbox.old_snapshots(SNAPSHOT_AGE, SNAPSHOT_TRANSACTIONS),
        advice: outbox.advice(),
    }
}

impl Trouble {
    /// Says nothing when there is none.
    pub(super) fn print(&self) {
        match &self.blocked {
            Ok(keys) if keys.count == 0 && !keys.more => {}
            Ok(keys) if keys.count == 0 => print::line(format_args!(
                "\nblocked keys none among the first {KEYS_MAX} that were looked at; there may be more"
            )),
            Ok(keys) => {
                print::line("");
                let more = if keys.more { "+" } else { "" };
                print::line(format_args!(
                    "blocked keys {}{more}, each with the event that holds it back",
                    keys.count
                ));
                keys.heads.iter().for_each(|head| print::line(sentence(head)));
            }
            Err(error) => print::line(format_args!("\nblocked keys not looked at: {error}")),
        }
        match &self.snapshots {
            Ok(snapshots) => {
                for it in snapshots {
                    print::line(format_args!("\nwarning: {}", warning(it)));
                }
            }
            Err(error) => print::line(format_args!("\nold snapshots not looked at: {error}")),
        }
        match &self.advice {
            Ok(advice) => advice.iter().for_each(|it| print::line(format_args!("\nwarning: {it}"))),
            Err(error) => print::line(format_args!("\ntable not looked at: {error}")),
        }
    }

    /// Three fields, null where it could not be looked at.
    pub(super) fn json(&self) -> [(&'static str, Value); 3] {
        let blocked = self.blocked.as_ref().ok().map(|keys| {
            json!({
                "count": keys.count,
                "more": keys.more,
                "heads": keys.heads.iter().map(head).collect::<Vec<_>>(),
            })
        });
        let snapshots = self.snapshots.as_ref().ok();
        let snapshots = snapshots.map(|all| all.iter().map(snapshot).collect::<Vec<_>>());
        let warnings = self.advice.as_ref().ok();
        [("blocked_keys", json!(blocked)), ("old_snapshots", json!(snapshots)), ("warnings", json!(warnings))]
    }
}

/// `  order-7: event 12 (01J..., order.paid) DEAD for 3h, 2 wait: NO_ROUTE (312): ...`
fn sentence(head: &BlockedKey) -> String {
    let age = head.age.map(|age| format!(" for {}", short(age))).unwrap_or_default();
    let due = head.due_at.as_ref().map(|at| format!(", due at {at}")).unwrap_or_default();
    print::one_line(&format!(
        "  {}: event {} ({}, {}) {}{age}{due}, {} wait: {}",
        head.key,
        head.id,
        head.event_id,
        head.event_type,
        head.status,
        depth(head),
        reason(head),
    ))
}

fn reason(head: &BlockedKey) -> &str {
    head.last_error.as_deref().unwrap_or(if head.status == "WAITING" {
        "scheduled"
    } else {
        "no reason given"
    })
}

fn depth(head: &BlockedKey) -> String {
    if head.depth > DEPTH_MAX { format!("{DEPTH_MAX}+") } else { head.depth.to_string() }
}

fn head(head: &BlockedKey) -> Value {
    json!({
        "ordering_key": head.key,
        "id": head.id,
        "event_id": head.event_id,
        "event_type": head.event_type,
        "status": head.status,
        "reason": reason(head),
        "due_at": head.due_at,
        "age_seconds": head.age.map(|age| age.as_secs_f64()),
        "depth": head.depth.min(DEPTH_MAX),
        "deeper": head.depth > DEPTH_MAX,
    })
}

fn warning(it: &OldSnapshot) -> String {
    print::one_line(&format!("{it}; {}", it.remedy()))
}

fn snapshot(it: &OldSnapshot) -> Value {
    json!({
        "kind": it.kind,
        "name": it.name,
        "application": it.application,
        "age_seconds": it.age.map(|age| age.as_secs_f64()),
        "transactions": it.transactions,
        "state": it.state,
    })
}

fn short(age: Duration) -> String {
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string()
}
