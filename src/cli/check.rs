//! `outboxd check`: what was found before anything is sent, for people and for programs. What is looked at, and what it
//! means, is the library's.

use clap::{Arg, ArgAction, Command};
use outboxd::check::{self, Finding, Report, Routed, Seen, State};
use outboxd::error::Kind;
use serde_json::{Value, json};

use super::args::{all, examples, settings};
use super::exit::Exit;
use super::print;
use super::settings::{Checked, exposed, hiding};

/// Its command line.
pub(super) fn command() -> Command {
    settings(Command::new("check"), &all())
        .about("Say what could keep events from being sent, and what to do about it; send nothing")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("print JSON"))
        .after_help(examples("outboxd check", "outboxd check --json --config /etc/outboxd.toml"))
}

/// Looks and tells; the exit code is that of the worst error.
pub(crate) fn check(checked: Checked, as_json: bool) -> Exit {
    let mut report = check::check(&checked.parts);
    report.findings.splice(0..0, configuration(&checked));
    if as_json {
        print::line(document(&report));
    } else {
        print(&report);
    }
    worst(&report.findings)
}

fn configuration(checked: &Checked) -> Vec<Finding> {
    let mut findings: Vec<_> = checked
        .problems
        .iter()
        .map(|it| Finding::error("configuration", Kind::Configuration, it.to_string()))
        .collect();
    if findings.is_empty() {
        let routes = match checked.routes {
            0 => String::new(),
            1 => ", and 1 route".into(),
            count => format!(", and {count} routes"),
        };
        let text = format!("valid; given by {}{routes}", checked.origins.join(", "));
        findings.push(Finding::ok("configuration", text));
    }
    let passwords = checked.exposed.iter();
    findings.extend(passwords.map(|it| Finding::warning("command_line", exposed(it), hiding(it))));
    findings
}

fn print(report: &Report) {
    for Finding { item, state, text, remedy } in &report.findings {
        let text = print::one_line(text);
        print::line(format_args!("{:<8} {item:<17} {text}", name(*state)));
        if let Some(remedy) = remedy {
            print::line(format_args!("{:26} -> {}", "", print::one_line(remedy)));
        }
    }
    if !report.routes.is_empty() {
        print::line("\nwhere each type goes");
        report.routes.iter().for_each(|it| print::line(print::one_line(&sentence(it))));
    }
    let count = |of: &str| match report.findings.iter().filter(|it| name(it.state) == of).count() {
        1 => format!("1 {of}"),
        count => format!("{count} {of}s"),
    };
    print::line(format_args!("\n{}, {}", count("error"), count("warning")));
}

/// `  order.paid, 12 unfinished: exchange "orders", routing key "order.paid" (route 1, order.*)`
fn sentence(routed: &Routed) -> String {
    let seen = match routed.seen {
        Seen::Table(count) => format!(", {count} unfinished"),
        Seen::Route => String::new(),
    };
    let to = match routed.to() {
        Some((exchange, key)) => format!("exchange {exchange:?}, routing key {key:?}"),
        None => "nowhere".into(),
    };
    format!("  {}{seen}: {to} ({})", routed.event_type, routed.by())
}

fn name(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Warning => "warning",
        State::Error(_) => "error",
    }
}

fn document(report: &Report) -> Value {
    let finding = |it: &Finding| json!({ "item": it.item, "state": name(it.state), "text": it.text, "remedy": it.remedy });
    let routed = |it: &Routed| {
        let to = it.to();
        json!({
            "event_type": it.event_type,
            "unfinished": match it.seen { Seen::Table(count) => Some(count), Seen::Route => None },
            "route": it.by,
            "exchange": to.map(|(exchange, _)| exchange),
            "routing_key": to.map(|(_, key)| key),
            "state": name(it.state()),
        })
    };
    let count = |of: &str| report.findings.iter().filter(|it| name(it.state) == of).count();
    json!({
        "errors": count("error"),
        "warnings": count("warning"),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "routes": report.routes.iter().map(routed).collect::<Vec<_>>(),
    })
}

/// What a person has to mend comes before what may pass by itself.
fn worst(findings: &[Finding]) -> Exit {
    let of = |finding: &Finding| match finding.state {
        State::Error(kind) => Some(Exit::from(kind)),
        State::Ok | State::Warning => None,
    };
    let order = [Exit::Internal, Exit::Configuration, Exit::Denied, Exit::Unavailable];
    let codes: Vec<_> = findings.iter().filter_map(of).collect();
    order.into_iter().find(|it| codes.contains(it)).unwrap_or(Exit::Done)
}

#[cfg(test)]
mod tests {
    use outboxd::error::Server;

    use super::*;

    #[test]
    fn the_worst_error_decides() {
        let error = |kind| Finding::error("x", kind, "y");
        let (gone, denied) = (Kind::Unavailable(Server::Broker), Kind::Denied(Server::Database));
        let cases: [(&[Finding], Exit); 5] = [
            (&[], Exit::Done),
            (&[Finding::ok("x", "y"), Finding::warning("x", "y", "z")], Exit::Done),
            (&[error(gone)], Exit::Unavailable),
            (&[error(gone), error(denied)], Exit::Denied),
            (&[error(denied), error(Kind::Configuration), error(gone)], Exit::Configuration),
        ];
        for (findings, expected) in cases {
            assert_eq!(worst(findings), expected, "{findings:?}");
        }
    }
}
