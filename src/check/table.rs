//! What is found about the table: rights, columns, indexes, the claim's plan, and which events wait. Decides what that
//! means.

use std::time::Duration;

use crate::config::TableName;
use crate::error::{Kind, Server};
use crate::outbox::{EventKind, Grants, Inspector, Plan};

use super::Finding;

/// A table up to this size is read through in no time, whatever the plan; in bytes.
const SMALL: u64 = 8 << 20;

/// Most kinds of events that are listed.
const KINDS_MAX: usize = 50;

/// The findings, and the kinds of unfinished events.
pub(super) fn look(
    table: &TableName,
    retention: Option<Duration>,
    inspector: &mut Inspector,
    role: &str,
) -> (Vec<Finding>, Vec<EventKind>) {
    let mut findings = Vec::new();
    let grants = match inspector.grants(role) {
        Ok(found) => found,
        Err(error) => {
            findings.push(Finding::of("grants", &error));
            Vec::new()
        }
    };
    let (mut may_look, mut bytes) = (true, 0);
    match grants.iter().find(|it| it.is_meant) {
        Some(it) => {
            (may_look, bytes) = (it.missing.is_empty(), it.bytes);
            findings.extend(rights(it, role, retention.is_some()));
        }
        None if grants.is_empty() => {}
        None => {
            findings.push(elsewhere(table, role, &grants));
            return (findings, Vec::new());
        }
    }
    match inspector.payload_type() {
        Ok(payload) => findings.push(columns(table, payload)),
        Err(error) => {
            // Rights that are missing are told already, and the way to them.
            if may_look || error.kind() != Kind::Denied(Server::Database) {
                findings.push(Finding::of("table", &error));
            }
            return (findings, Vec::new());
        }
    }
    findings.extend(suggestions(inspector));
    if may_look {
        findings.push(match inspector.plan() {
            Ok(plan) => planned(&plan, bytes),
            Err(error) => Finding::of("plan", &error),
        });
        match inspector.kinds(KINDS_MAX) {
            Ok(kinds) => return (findings, kinds),
            Err(error) => findings.push(Finding::of("routes", &error)),
        }
    }
    (findings, Vec::new())
}

fn rights(grants: &Grants, role: &str, purges: bool) -> Vec<Finding> {
    let mut missing: Vec<&str> = grants.missing.iter().map(String::as_str).collect();
    missing.extend(grants.missing_to_purge.as_deref().filter(|_| purges));
    let mut findings: Vec<_> = missing
        .iter()
        .map(|grant| {
            let right = grant.split(" on ").next().unwrap_or(grant).trim_start_matches("grant ");
            let of = if right == "usage" { "the table's schema" } else { "the table" };
            let text = format!("role {role} lacks {right} on {of}");
            Finding::error("grants", Kind::Denied(Server::Database), text).with_remedy(*grant)
        })
        .collect();
    if findings.is_empty() {
        let purge = if purges { " and delete from" } else { "" };
        findings.push(Finding::ok("grants", format!("role {role} may select, update{purge} the table")));
    }
    if !grants.sees_all {
        findings.push(Finding::warning(
            "grants",
            format!("row security is in force for role {role}: it may not see all events"),
            "give the role a policy that lets it see and update all rows, or bypassrls",
        ));
    }
    findings
}

/// There is a table of the name, and it is not where the name leads.
fn elsewhere(table: &TableName, role: &str, found: &[Grants]) -> Finding {
    let schemas: Vec<&str> = found.iter().map(|it| it.schema.as_str()).collect();
    let text = format!(
        "table {table} does not exist where role {role} looks for it; one is in {}",
        schemas.join(", ")
    );
    let first = found.first().map(|it| it.schema.clone());
    let full = TableName { schema: first, name: table.name.clone() };
    let usage = found.first().and_then(|it| it.missing.iter().find(|it| it.starts_with("grant usage")));
    let also = usage.map(|grant| format!(", and {grant}")).unwrap_or_default();
    Finding::error("table", Kind::Configuration, text)
        .with_remedy(format!("name it with --table '{full}'{also}"))
}

fn columns(table: &TableName, payload: &str) -> Finding {
    let text = format!("{table} is complete, its payload is {payload}");
    match payload {
        "jsonb" => Finding::warning(
            "table",
            format!("{text}, which keeps a value but not the bytes that were written"),
            "where consumers need the very bytes, make the column json, text or bytea",
        ),
        _ => Finding::ok("table", text),
    }
}

fn suggestions(inspector: &mut Inspector) -> Vec<Finding> {
    let found = match inspector.suggestions() {
        Ok(found) => found,
        Err(error) => return vec![Finding::of("indexes", &error)],
    };
    let mut findings: Vec<_> =
        found.iter().map(|it| Finding::warning(it.about, &it.what, &it.remedy)).collect();
    if !found.iter().any(|it| it.about == "status") {
        findings.push(Finding::ok("status", "takes every status"));
    }
    if !found.iter().any(|it| it.about == "indexes") {
        findings.push(Finding::ok("indexes", "all four are there and usable"));
    }
    findings
}

fn planned(plan: &Plan, bytes: u64) -> Finding {
    let Plan { index, uses_index } = plan;
    let mebibytes = bytes >> 20;
    match uses_index {
        true => Finding::ok("plan", format!("a claim goes along the index {index}")),
        false if bytes < SMALL => {
            Finding::ok("plan", format!("a claim does not use the index {index}; the table is small"))
        }
        false => Finding::warning(
            "plan",
            format!("a claim does not use the index {index}, and may read all {mebibytes} MiB of the table"),
            "run outboxd init, which makes the index if it is not there",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_plan_without_the_index_matters_on_a_large_table_only() {
        let plan = |uses_index| Plan { index: "i".into(), uses_index };
        for (uses_index, bytes, expected) in
            [(true, u64::MAX, State::Ok), (false, SMALL - 1, State::Ok), (false, SMALL, State::Warning)]
        {
            assert_eq!(planned(&plan(uses_index), bytes).state, expected, "{uses_index} {bytes}");
        }
    }

    #[test]
    fn what_only_purging_needs_is_missing_only_where_it_purges() {
        let grants = Grants {
            schema: "app".into(),
            is_meant: true,
            sees_all: true,
            missing: Vec::new(),
            missing_to_purge: Some("grant delete on \"app\".\"t\" to \"r\"".into()),
            bytes: 0,
        };
        assert_eq!(rights(&grants, "r", false).first().map(|it| it.state), Some(State::Ok));
        let found = rights(&grants, "r", true);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "role r lacks delete on the table");
        assert_eq!(found[0].remedy.as_deref(), Some("grant delete on \"app\".\"t\" to \"r\""));
    }
}
