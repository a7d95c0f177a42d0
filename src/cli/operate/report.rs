//! Events and what was changed about them, for people and for programs.

use std::time::{Duration, Instant};

use outboxd::error::{Error, Result};
use outboxd::outbox::{Changes, Listed};
use serde_json::{Value, json};

use super::super::exit::Exit;
use super::super::print;
use super::super::progress::{self, Progress, Total};

/// How long a command counts what it has to do before it begins, for the line that shows how far it is.
const COUNT_MAX: Duration = Duration::from_secs(1);

/// How a command speaks of itself.
pub(super) struct Words {
    /// Such as `retry`.
    pub(super) command: &'static str,
    /// Such as `retried`.
    pub(super) done: &'static str,
    /// Why some were left.
    pub(super) left: &'static str,
    pub(super) dry_run: bool,
    pub(super) json: bool,
}

/// A usage error that only shows when the flags are looked at together.
pub(super) fn usage(problem: &str) -> Exit {
    print::error(problem);
    Exit::Usage
}

/// Logs a batch. What was done is kept, in case the next one fails.
pub(super) fn note(command: &str, so_far: &Changes, kept: &mut u64, progress: Option<&Progress>) -> bool {
    if let Some(progress) = progress {
        progress.count().set(so_far.changed);
    }
    log::debug!("{command}: {} events so far, {} matched", so_far.changed, so_far.matched);
    *kept = so_far.changed;
    true
}

/// Shows how far a change is, where somebody looks. How much there is to change, `count` is asked first: a dry run of the
/// same, which ends when it is told to.
pub(super) fn show(
    done: &'static str,
    dry_run: bool,
    count: impl FnOnce(&mut dyn FnMut(&Changes) -> bool) -> Result<Changes>,
) -> Option<Progress> {
    if dry_run || !progress::is_wanted() {
        return None;
    }
    let (began, mut in_time) = (Instant::now(), true);
    let counted = count(&mut |_| {
        in_time = began.elapsed() < COUNT_MAX;
        in_time
    });
    let progress = Progress::start(done)?;
    match counted.map(|it| it.matched.saturating_sub(it.overdue)) {
        Ok(count) if in_time => progress.count().is_of(Total::Exactly(count)),
        Ok(count) => progress.count().is_of(Total::MoreThan(count)),
        // The change itself will say why.
        Err(_) => {}
    }
    Some(progress)
}

/// Says what was changed, or would be. `further` sentences and fields are the command's own.
pub(super) fn changes(
    words: &Words,
    result: Result<Changes>,
    kept: u64,
    further: &[String],
    fields: &[(&str, Value)],
) -> Exit {
    let changes = match result {
        Ok(changes) => changes,
        Err(error) => {
            if kept > 0 {
                print::error(format_args!(
                    "{} {kept} events before it failed; the rest is as it was",
                    words.done
                ));
            }
            return failed(&error);
        }
    };
    if words.json {
        let mut document = json!({
            "command": words.command,
            "dry_run": words.dry_run,
            "matched": changes.matched,
            "changed": changes.changed,
            "past_deadline": changes.overdue,
            "being_sent": if words.dry_run { Value::Null } else { json!(changes.being_sent()) },
            "stopped_at": changes.stopped_at,
            "examples": changes.examples.iter().map(event).collect::<Vec<_>>(),
        });
        for (name, value) in fields {
            document.as_object_mut().map(|document| document.insert((*name).into(), value.clone()));
        }
        print::line(document);
        return Exit::Done;
    }
    if words.dry_run {
        let count = changes.matched - changes.overdue.min(changes.matched);
        print::line(format_args!("would have {} {}", words.done, events(count)));
    } else {
        print::line(format_args!("{} {}", words.done, events(changes.changed)));
        if changes.being_sent() > 0 {
            let count = changes.being_sent();
            print::line(format_args!("left {}: {}", events(count), words.left));
        }
    }
    further.iter().for_each(print::line);
    if words.dry_run && !changes.examples.is_empty() {
        print::line("");
        table(&changes.examples);
        let shown = u64::try_from(changes.examples.len()).unwrap_or(u64::MAX);
        let more = changes.matched.saturating_sub(changes.overdue).saturating_sub(shown);
        if more > 0 {
            print::line(format_args!("and {more} more"));
        }
    }
    Exit::Done
}

/// `1 event`, `2 events`.
pub(super) fn events(count: u64) -> String {
    if count == 1 { "1 event".into() } else { format!("{count} events") }
}

/// Prints the error.
pub(super) fn failed(error: &Error) -> Exit {
    print::error(error);
    error.kind().into()
}

/// An event in a JSON document.
pub(super) fn event(listed: &Listed) -> Value {
    json!({
        "id": listed.id,
        "event_id": listed.event_id,
        "event_type": listed.event_type,
        "ordering_key": listed.ordering_key,
        "status": listed.status,
        "fail_count": listed.fail_count,
        "created_at": listed.created_at,
        "age_seconds": listed.age.map(|age| age.as_secs_f64()),
        "available_at": listed.available_at,
        "last_error": listed.last_error,
    })
}

/// Longest last error in a table, in characters.
const ERROR_MAX: usize = 160;

/// The same of a type or a key.
const NAME_MAX: usize = 60;

/// Prints events as a table.
pub(super) fn table(events: &[Listed]) {
    let head = ["ID", "EVENT ID", "TYPE", "KEY", "STATUS", "TRIES", "AGE", "LAST ERROR"].map(String::from);
    let row = |event: &Listed| {
        [
            event.id.to_string(),
            print::one_line(&event.event_id),
            print::one_line(&cut(&event.event_type, NAME_MAX)),
            print::one_line(&cut(event.ordering_key.as_deref().unwrap_or("-"), NAME_MAX)),
            print::one_line(&event.status),
            event.fail_count.to_string(),
            event.age.map_or("-".into(), short_age),
            print::one_line(&cut(event.last_error.as_deref().unwrap_or("-"), ERROR_MAX)),
        ]
    };
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(events.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..8).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        print::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.into(),
    }
}

/// The two largest units: `3h 5m`.
pub(super) fn short_age(age: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(age.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
