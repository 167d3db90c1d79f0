use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_tool_core::journal::{Journal, Note};
use tower_tool_core::{
    ApprovalId, CallId, Category, Digest, Effect, ExecutionId, Provenance, Risk, Timestamp, ToolCall, ToolError,
    ToolErrorKind, ToolOutput, ToolSpec,
};

use crate::redact::Redactor;

/// The version of the record's form.
pub const AUDIT_RECORD_VERSION: u16 = 1;

/// Whether a record opens or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// Before anything happens.
    Opened,
    /// When it is over.
    Closed,
}

/// Where the layer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Point {
    /// Outermost: every call.
    Call,
    /// Around the tool: every execution.
    Execution,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The tool ran for this call and answered.
    Completed,
    /// The answer is that of an earlier call.
    Replayed,
    /// The answer is that of another call, which was under way.
    Joined,
    /// It was not let through.
    Refused,
    /// The tool failed, or runs still when its caller's patience has ended.
    Failed,
    /// It may have been done.
    Unknown,
    /// The tool, or a layer around it, panicked.
    Panicked,
    /// The caller went away.
    Cancelled,
}

/// How it ended, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Which layer refused, or `dispatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The category of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// What is known of the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// One audit record.
///
/// Serialises to one line of JSON. Text that callers wrote is escaped by that, so no record can look like two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditRecord {
    /// [`AUDIT_RECORD_VERSION`].
    pub version: u16,
    /// Whether it opens or closes.
    pub event: Event,
    /// Where the layer stands.
    pub point: Point,
    /// The call, the same for both events and points.
    pub call_id: CallId,
    /// When.
    pub at: Timestamp,
    /// The tenant.
    pub tenant: Arc<str>,
    /// The actor.
    pub actor: Arc<str>,
    /// The agent that acts for the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// When the actor authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated_at: Option<Timestamp>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Arc<str>>,
    /// The run of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<str>>,
    /// The step within the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
    /// The name that was called, known or not.
    pub tool: Arc<str>,
    /// The author's version of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_version: Option<String>,
    /// The digest of the tool's definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Digest>,
    /// The tool's risk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// The arguments as they may be shown. Only when it opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The digest of the intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Digest>,
    /// The digest of the normal form of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_hash: Option<Digest>,
    /// The approval that was asked for, joined or used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
    /// The execution that this call began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
    /// The execution that the answer comes from, where that is another call's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<ExecutionId>,
    /// The fence of the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Which attempt the execution is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Whether somebody else had claimed the intent when the result came: there may be two effects.
    #[serde(default, skip_serializing_if = "is_false")]
    pub claim_lost: bool,
    /// The execution that the tool's own hook was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<ExecutionId>,
    /// How often the call was resumed with an approval.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resumed: u32,
    /// The journal's pass when the record was opened.
    #[serde(skip)]
    first_pass: u32,
    /// How long it took, in milliseconds. Only when it closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// How it ended. Only when it closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl AuditRecord {
    pub(super) fn opened(call: &ToolCall, point: Point, at: Timestamp, redactor: &Redactor) -> Self {
        let principal = call.context.principal();
        let spec = call.spec();
        let schema = spec.map(ToolSpec::input_schema);
        let mut record = Self {
            version: AUDIT_RECORD_VERSION,
            event: Event::Opened,
            point,
            call_id: call.journal().call_id(),
            at,
            tenant: principal.tenant().into(),
            actor: principal.actor().into(),
            agent: principal.agent().map(Into::into),
            authenticated_at: principal.authenticated_at(),
            scope: call.context.scope().map(|scope| scope.as_str().into()),
            run: call.context.run().map(Into::into),
            step: call.context.step().map(Into::into),
            tool: redactor.text(call.name()).as_ref().into(),
            tool_version: spec.map(|spec| spec.version().to_owned()),
            definition: spec.map(|spec| *spec.definition_digest()),
            risk: spec.map(ToolSpec::risk),
            arguments: Some(redactor.value(call.arguments(), schema)),
            intent: None,
            arguments_hash: None,
            approval: None,
            execution: None,
            replay_of: None,
            fence: None,
            attempt: None,
            claim_lost: false,
            reconciled: None,
            resumed: 0,
            first_pass: call.journal().pass(),
            duration_ms: None,
            outcome: None,
        };
        if point == Point::Execution {
            record.read(call.journal());
        }
        record
    }

    pub(super) fn close(&mut self, journal: &Journal, outcome: Outcome, at: Timestamp, took: Duration) {
        self.event = Event::Closed;
        self.at = at;
        self.arguments = None;
        self.duration_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        self.outcome = Some(outcome);
        self.read(journal);
    }

    /// Takes the facts of the last pass from the journal.
    fn read(&mut self, journal: &Journal) {
        // Earlier passes belong to calls that were made with the same journal before: what a retry around the toolset tried.
        for (pass, note) in journal.notes().into_iter().filter(|(pass, _)| *pass >= self.first_pass) {
            self.resumed = pass - self.first_pass;
            match note {
                Note::Validated { intent, arguments_hash } => {
                    self.intent = Some(intent);
                    self.arguments_hash = Some(arguments_hash);
                }
                Note::Asked(id) | Note::JoinedCard(id) | Note::Resumed(id) | Note::Granted(id) => {
                    self.approval = Some(id);
                }
                Note::Claimed { execution, fence, attempt } => {
                    self.execution = Some(execution);
                    self.fence = Some(fence);
                    self.attempt = Some(attempt);
                }
                Note::Replayed(id) | Note::Joined(id) => self.replay_of = Some(id),
                Note::ClaimLost(_) => self.claim_lost = true,
                Note::Reconciling(id) => self.reconciled = Some(id),
                _ => {}
            }
        }
    }
}

impl Outcome {
    pub(super) const fn cancelled() -> Self {
        Self { status: Status::Cancelled, by: None, code: None, category: None, effect: None }
    }

    pub(super) const fn panicked() -> Self {
        Self { status: Status::Panicked, by: None, code: None, category: None, effect: None }
    }

    pub(super) fn answered(output: &ToolOutput) -> Self {
        let status = match output.provenance() {
            Provenance::Replayed => Status::Replayed,
            Provenance::Joined => Status::Joined,
            _ => Status::Completed,
        };
        Self { status, by: None, code: None, category: None, effect: Some(Effect::Done) }
    }

    pub(super) fn failed(error: &ToolError, journal: &Journal) -> Self {
        let refused_by = journal.last(|note| match note {
            Note::Refused { by, .. } => Some(*by),
            _ => None,
        });
        let has = |like: fn(&Note) -> bool| journal.last(|note| like(note).then_some(())).is_some();
        let dispatched = has(|note| matches!(note, Note::Dispatched));
        let answered_by_another = has(|note| matches!(note, Note::Replayed(_) | Note::Joined(_)));
        let status = if has(|note| matches!(note, Note::Panicked)) {
            Status::Panicked
        } else if error.kind() == ToolErrorKind::InProgress {
            Status::Failed
        } else if error.effect() == Effect::MaybeDone {
            Status::Unknown
        } else if refused_by.is_some() || (!dispatched && !answered_by_another) {
            Status::Refused
        } else {
            Status::Failed
        };
        let by = (status == Status::Refused).then(|| refused_by.map_or("dispatch", |by| by.as_str()).to_owned());
        Self {
            status,
            by,
            code: Some(error.code().to_owned()),
            category: Some(error.category()),
            effect: Some(error.effect()),
        }
    }
}
