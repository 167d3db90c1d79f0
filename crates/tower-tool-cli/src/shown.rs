use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use tower_tool::ledger::ExecutionStatus;
use tower_tool::redact::Redactor;
use tower_tool::store::{Settled, State};

/// An execution as operators see it: arguments and results are masked as on cards.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) execution: String,
    pub(crate) state: String,
    tenant: String,
    actor: String,
    scope: String,
    tool: String,
    pub(crate) created_at: String,
    window_ends: String,
    attempt: u32,
    fence: u64,
    /// What the tool has passed on to its provider: what to ask the provider about.
    provider_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ends: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<Settled>,
}

impl Shown {
    pub(crate) fn of(execution: &ExecutionStatus) -> Self {
        let record = execution.record();
        let redactor = Redactor::default();
        let is_latest = record.state.execution() == Some(execution.id());
        let state = is_latest.then_some(&record.state);
        let (lease_ends, since, reason, result) = match state {
            Some(State::Running { lease_ends, .. }) => (Some(lease_ends.to_string()), None, None, None),
            Some(State::Unknown { since, reason, .. }) => {
                (None, Some(since.to_string()), Some(redactor.text(reason).into_owned()), None)
            }
            Some(State::Completed { output, .. }) => {
                let body = output.data.as_ref().map(|body| redactor.value(body.value(), None));
                (None, None, None, Some(body.unwrap_or_else(|| "(no longer kept)".into())))
            }
            Some(State::Failed { error, .. }) => {
                (None, None, Some(format!("{}: {}", error.code, error.safe_message)), None)
            }
            _ => (None, None, None, None),
        };
        let arguments = record.arguments.as_ref().map(|arguments| redactor.value(&arguments.value, None));
        let card = record.approval.as_ref();
        Self {
            execution: execution.id().to_string(),
            state: execution.state().to_owned(),
            tenant: record.key.tenant.to_string(),
            actor: record.key.actor.to_string(),
            scope: record.key.scope.to_string(),
            tool: record.key.tool.to_string(),
            created_at: record.created_at.to_string(),
            window_ends: record.window_ends.to_string(),
            attempt: record.attempt,
            fence: record.fence,
            provider_key: record.provider_key.to_string(),
            key: record.explicit_key.as_ref().map(ToString::to_string),
            approval: card.map(|card| card.id.to_string()),
            lease_ends,
            since,
            reason,
            arguments: arguments.or_else(|| card.map(|card| card.view.clone())),
            result,
            settled: record.settled.clone(),
        }
    }

    /// One member a line.
    pub(crate) fn to_text(&self) -> String {
        let Ok(Value::Object(members)) = serde_json::to_value(self) else {
            return String::new();
        };
        let width = members.keys().map(String::len).max().unwrap_or_default();
        members.iter().fold(String::new(), |mut text, (name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), printable);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:width$}  {value}");
            text
        })
    }
}

/// Callers choose names; a terminal must not obey them.
fn printable(text: &str) -> String {
    text.chars().flat_map(|char| if char.is_control() { char.escape_default().collect() } else { vec![char] }).collect()
}

/// The columns that tell executions apart.
pub(crate) fn table(rows: &[Shown]) -> String {
    let header = ["EXECUTION", "STATE", "TENANT", "ACTOR", "SCOPE", "TOOL", "CREATED"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        [&row.execution, &row.state, &row.tenant, &row.actor, &row.scope, &row.tool, &row.created_at]
            .map(|cell| printable(cell))
    });
    let lines: Vec<_> = std::iter::once(header).chain(cells).collect();
    let mut widths = [0; 7];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    lines.iter().fold(String::new(), |mut text, line| {
        let row: String = line.iter().zip(widths).fold(String::new(), |mut row, (cell, width)| {
            // Writing to a string cannot fail.
            let _ = write!(row, "{cell:width$}  ");
            row
        });
        text.push_str(row.trim_end());
        text.push('\n');
        text
    })
}
