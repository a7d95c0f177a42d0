//! Events that were named with `--id`: which of them there are, and why some were left.

use outboxd::error::Result;
use outboxd::outbox::{Changes, Filter, List, Listed, Outbox, Reference};
use serde_json::{Value, json};

use super::super::exit::Exit;
use super::super::print;

/// What the names lead to, as it was before anything was changed.
pub(super) struct Named {
    found: Vec<Listed>,
    missing: Vec<String>,
    table: String,
}

impl Named {
    /// Looks for them; finds nothing when the filter names none.
    pub(super) fn look(outbox: &mut Outbox, filter: &Filter) -> Result<Self> {
        let mut named = Self { found: Vec::new(), missing: Vec::new(), table: outbox.table().to_string() };
        if filter.events.is_empty() {
            return Ok(named);
        }
        let wanted = Filter { events: filter.events.clone(), ..Filter::default() };
        let limit = u64::try_from(filter.events.len()).unwrap_or(u64::MAX);
        named.found = outbox.list(&List { filter: wanted, limit, newest: false, after: None })?.events;
        let there = |event: &&Reference| {
            named.found.iter().any(|it| match event {
                Reference::Row(id) => it.id == *id,
                Reference::Event(id) => it.event_id == *id,
            })
        };
        let missing = filter.events.iter().filter(|event| !there(event)).map(ToString::to_string);
        named.missing = missing.collect();
        Ok(named)
    }

    /// Those that the command did not mean, with the reason. None when the report does not tell of each event.
    pub(super) fn left(&self, changes: &Changes, reason: impl Fn(&Listed) -> String) -> Vec<(i64, String)> {
        if changes.matched > changes.overdue + changes.examples.len() as u64 {
            return Vec::new();
        }
        let meant = |id: i64| changes.examples.iter().any(|it| it.id == id);
        self.found.iter().filter(|it| !meant(it.id)).map(|it| (it.id, reason(it))).collect()
    }

    /// Says which there are not; the exit code is then that of what is missing.
    pub(super) fn exit(&self, exit: Exit) -> Exit {
        for event in &self.missing {
            print::error(format_args!("there is no event {} in {}", print::one_line(event), self.table));
        }
        if exit == Exit::Done && !self.missing.is_empty() { Exit::Missing } else { exit }
    }
}

/// As sentences.
pub(super) fn sentences(left: &[(i64, String)]) -> Vec<String> {
    left.iter().map(|(id, reason)| format!("left event {id}: {}", print::one_line(reason))).collect()
}

/// As JSON.
pub(super) fn json(left: &[(i64, String)]) -> Value {
    left.iter().map(|(id, reason)| json!({ "id": id, "reason": reason })).collect()
}
