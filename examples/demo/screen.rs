//! How the story looks: what is typed after a prompt, what comes back indented, all within the screen's width.

use std::io::{IsTerminal, stdout};

use crate::harness::{AmqpValue, Message};

/// How many columns the story takes at most.
const WIDTH: usize = 110;

const INDENT: &str = "    ";

pub(crate) fn title(text: &str) {
    println!("\n{}\n", bold(text));
}

pub(crate) fn command(line: &str) {
    typed("$", line);
}

/// What a newcomer would type at this prompt.
pub(crate) fn typed(prompt: &str, text: &str) {
    for line in text.lines() {
        println!("{prompt} {}", bold(line));
    }
}

/// What came back, broken between words where it would be too wide.
pub(crate) fn output(text: &str) {
    for line in text.lines() {
        let (mut shown, mut width) = (String::new(), INDENT.len());
        for word in line.split_inclusive(' ') {
            if width + word.trim_end().len() > WIDTH && !shown.is_empty() {
                println!("{INDENT}{}", shown.trim_end());
                (shown, width) = (INDENT.into(), 2 * INDENT.len());
            }
            shown += word;
            width += word.len();
        }
        println!("{}", format!("{INDENT}{shown}").trim_end());
    }
}

/// Rows in aligned columns; a row that is too wide is cut.
pub(crate) fn table(names: &[String], rows: &[Vec<String>]) {
    let lines = || [names].into_iter().chain(rows.iter().map(Vec::as_slice));
    let widest = |column: usize| lines().map(|line| line[column].len()).max().unwrap_or(0);
    for line in lines() {
        let cells = line.iter().enumerate();
        let line: String = cells.map(|(column, cell)| format!("{cell:<0$}", widest(column) + 2)).collect();
        let cut: String = line.chars().take(WIDTH - INDENT.len()).collect();
        println!("{INDENT}{}", cut.trim_end());
    }
}

/// A message as its consumer sees it.
pub(crate) fn message(message: &Message) {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let time = std::time::Duration::from_secs(message.timestamp.unwrap_or_default());
    let time = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + time);
    let headers: Vec<_> = message.headers.iter().map(header).collect();
    let mode = message.delivery_mode.unwrap_or_default();
    for (name, value) in [
        ("exchange", message.exchange.clone()),
        ("routing key", message.routing_key.clone()),
        ("message_id", text(&message.message_id)),
        ("type", text(&message.kind)),
        ("content_type", text(&message.content_type)),
        ("delivery_mode", format!("{mode} (2 is persistent)")),
        ("timestamp", time.to_string()),
        ("app_id", text(&message.app_id)),
        ("headers", headers.join(", ")),
        ("body", message.text().to_owned()),
    ] {
        output(&format!("{name:<14} {value}"));
    }
}

fn header((name, value): (&String, &AmqpValue)) -> String {
    match value {
        AmqpValue::LongString(text) => format!("{name} = {text:?}"),
        AmqpValue::LongLongInt(number) => format!("{name} = {number}"),
        other => format!("{name} = {other:?}"),
    }
}

/// Bold on a terminal, plain in a file or a pipe.
fn bold(text: &str) -> String {
    if stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}
