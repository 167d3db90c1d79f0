use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    ApprovalId, CallContext, Digest, Effect, ExecutionId, Receipt, Redacted, Risk, Timestamp, ToolError, ToolErrorKind,
    ToolOutput,
};

/// The version of the record's form. Version 1, which knew no retention, no stored arguments and no settlement, is still read.
pub const LEDGER_RECORD_VERSION: u16 = 2;

/// Counts the changes of a record. Compare-and-swap compares it.
pub type Revision = u64;

/// Where a record lives: tenant, actor and scope, tool, and the digest of the intent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a further part would be another key, and so another version")]
pub struct RecordKey {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The actor.
    pub actor: Arc<str>,
    /// The session.
    pub scope: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
    /// The digest of all of these and of the caller's key, or the fingerprint.
    pub digest: Digest,
}

impl RecordKey {
    /// Whether a call in this context may know of the record: same tenant, actor and session.
    pub fn belongs_to(&self, context: &CallContext) -> bool {
        *self.tenant == *context.principal().tenant()
            && *self.actor == *context.principal().actor()
            && *self.scope == *context.scope().map_or("", crate::Scope::as_str)
    }
}

/// Arguments and their hash. `Debug` shows the hash alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "a value and its hash, nothing else")]
pub struct Arguments {
    /// `sha256:…` over the canonical form.
    pub hash: Digest,
    /// The arguments.
    pub value: Arc<Value>,
}

impl Arguments {
    /// Arguments with their hash, which is plain: where a deployment key is in force, take the intent's.
    pub fn new(value: Arc<Value>) -> Self {
        Self { hash: crate::intent::arguments_hash(&value, None), value }
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, value: _ } = self;
        f.debug_struct("Arguments").field("hash", hash).field("value", &Redacted::<()>::MARK).finish()
    }
}

/// Who asked for an approval, from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Asker {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The actor.
    pub actor: Arc<str>,
    /// The agent that acts for the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// The session.
    pub scope: Arc<str>,
    /// The run of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<str>>,
    /// The step within the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
}

impl Asker {
    /// The one who calls in this context.
    pub fn of(context: &CallContext) -> Self {
        let principal = context.principal();
        Self {
            tenant: principal.tenant().into(),
            actor: principal.actor().into(),
            agent: principal.agent().map(Into::into),
            scope: context.scope().map_or("", crate::Scope::as_str).into(),
            run: context.run().map(Into::into),
            step: context.step().map(Into::into),
        }
    }
}

/// Through which door a decision came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Door(Arc<str>);

impl Door {
    /// Names a door, such as `http` or `terminal`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a person decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Who decided.
    pub by: Arc<str>,
    /// Through which door.
    pub door: Door,
    /// The hash of the arguments that were shown.
    pub args_hash: Digest,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl Decision {
    /// A decision on the arguments with this hash.
    pub fn new(approved: bool, by: impl Into<Arc<str>>, door: Door, args_hash: Digest, at: Timestamp) -> Self {
        Self { approved, by: by.into(), door, args_hash, reason: None, at }
    }

    /// Says why.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

/// A card: what exactly may run, for whom, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Approval {
    /// Its id. Knowing it authorises nothing.
    pub id: ApprovalId,
    /// Who asked.
    pub asker: Asker,
    /// What was asked for.
    pub requested: Arguments,
    /// What will run: the same, unless the approver changed it.
    pub executed: Arguments,
    /// The arguments as they may be shown.
    pub view: Value,
    /// The definition of the tool that was shown.
    pub definition: Digest,
    /// The risk that was shown.
    pub risk: Risk,
    /// Why a person is asked.
    pub reason: String,
    /// When the card was opened.
    pub created_at: Timestamp,
    /// A decision must come before this moment.
    pub decide_by: Timestamp,
    /// An approval must be used before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redeem_by: Option<Timestamp>,
    /// What was decided, by whom.
    #[serde(default)]
    pub decisions: Vec<Decision>,
    /// The execution that used it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_by: Option<ExecutionId>,
}

impl Approval {
    /// A card that nobody has decided yet.
    #[expect(clippy::too_many_arguments, reason = "each is a fact that the card must state")]
    pub fn new(
        id: ApprovalId,
        asker: Asker,
        arguments: Arguments,
        view: Value,
        definition: Digest,
        risk: Risk,
        reason: impl Into<String>,
        created_at: Timestamp,
        decide_by: Timestamp,
    ) -> Self {
        Self {
            id,
            asker,
            requested: arguments.clone(),
            executed: arguments,
            view,
            definition,
            risk,
            reason: reason.into(),
            created_at,
            decide_by,
            redeem_by: None,
            decisions: Vec::new(),
            spent_by: None,
        }
    }
}

/// A card that was replaced by a later one of the same intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "what an old id must still answer, and no more")]
pub struct ClosedApproval {
    /// Its id.
    pub id: ApprovalId,
    /// `denied`, `expired`, `cancelled`, `spent`, or `replaced` by a later card.
    pub ended: Arc<str>,
}

/// How deep a kept result may nest. `serde_json` reads 128 levels, and the record has some of its own.
const MAX_BODY_DEPTH: usize = 100;

/// A result as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredOutput {
    /// The data, `None` once it was dropped to make room. Written, `null` is data, and what was dropped is not there.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "there")]
    pub data: Option<Body>,
    /// The receipt stays when the data goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Arc<Receipt>>,
    /// Where the data comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Arc<str>>,
    /// Whether the data is not all there is.
    #[serde(default)]
    pub truncated: bool,
    /// When the tool answered.
    pub observed_at: Timestamp,
}

/// What is there is there, also if it is `null`.
fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Body>, D::Error> {
    Body::deserialize(deserializer).map(Some)
}

/// Data that `Debug` does not show.
#[derive(Clone, PartialEq)]
pub struct Body {
    value: Arc<Value>,
    bytes: u64,
}

impl Body {
    /// Keeps this data.
    pub fn new(value: Arc<Value>) -> Self {
        let mut bytes = Bytes(0);
        // Counting cannot fail, and a value can always be written.
        let _ = serde_json::to_writer(&mut bytes, &*value);
        Self { value, bytes: bytes.0 }
    }

    /// The data.
    pub fn value(&self) -> &Arc<Value> {
        &self.value
    }

    /// How many bytes of JSON it is.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Arc::deserialize(deserializer).map(Self::new)
    }
}

/// Counts what is written to it.
struct Bytes(u64);

impl std::io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Redacted::<()>::MARK)
    }
}

impl StoredOutput {
    /// Keeps an output. Data that nests deeper than a reader would follow is known to have been there, and not kept.
    pub fn new(output: &ToolOutput, observed_at: Timestamp) -> Self {
        let is_readable = crate::arguments::depth_of(output.data()) <= MAX_BODY_DEPTH;
        Self {
            data: is_readable.then(|| Body::new(Arc::clone(output.data()))),
            receipt: output.receipt().cloned(),
            source: output.source().cloned(),
            truncated: output.is_truncated(),
            observed_at,
        }
    }

    /// The output again, `None` if its data was dropped.
    pub fn restore(&self) -> Option<ToolOutput> {
        let mut output = ToolOutput::new(Arc::clone(self.data.as_ref()?.value()))
            .with_truncated(self.truncated)
            .with_observed_at(self.observed_at);
        if let Some(receipt) = &self.receipt {
            output = output.with_receipt(Arc::clone(receipt));
        }
        if let Some(source) = &self.source {
            output = output.with_source(Arc::clone(source));
        }
        Some(output)
    }
}

/// An error as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_structs, reason = "what the caller was told, and no more")]
pub struct StoredError {
    /// The code.
    pub code: String,
    /// What the model was told.
    pub safe_message: String,
    /// What the client was told besides.
    #[serde(default)]
    pub details: serde_json::Map<String, Value>,
    /// What was known of the effect.
    pub effect: Effect,
}

impl StoredError {
    /// Keeps an error.
    pub fn new(error: &ToolError) -> Self {
        Self {
            code: error.code().to_owned(),
            safe_message: error.safe_message().into_owned(),
            details: error.details().clone(),
            effect: error.effect(),
        }
    }

    /// The error again, as far as its caller was told of it.
    pub fn restore(&self) -> ToolError {
        let kind = ToolErrorKind::from_code(&self.code).unwrap_or(ToolErrorKind::Internal);
        let error = ToolError::new(kind, "an earlier call of the same intent failed")
            .with_safe_message(self.safe_message.clone())
            .done(self.effect);
        self.details.iter().fold(error, |error, (name, value)| error.with_detail(name.clone(), value.clone()))
    }
}

/// Who said what became of an execution that nobody could say it of, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settled {
    /// Who: an operator, or `reconcile` where the tool's own hook asked the provider.
    pub by: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// On what grounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grounds: Option<String>,
}

impl Settled {
    /// Settled by `by`, now.
    pub fn new(by: impl Into<Arc<str>>, at: Timestamp, grounds: Option<String>) -> Self {
        Self { by: by.into(), at, grounds }
    }
}

/// Where an intent stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "a further state would be another state machine, and so another version")]
pub enum State {
    /// A person is asked.
    Pending,
    /// A person said yes, and nothing ran yet.
    Approved,
    /// A person said no.
    Denied,
    /// Nobody decided in time, or nobody came back in time.
    Expired,
    /// The card was withdrawn.
    Cancelled,
    /// The tool runs.
    Running {
        /// The execution.
        execution: ExecutionId,
        /// Until when the owner is known to live.
        lease_ends: Timestamp,
        /// Whether it runs under the record's approval.
        granted: bool,
    },
    /// The tool ran and answered.
    Completed {
        /// The execution.
        execution: ExecutionId,
        /// What it answered.
        output: StoredOutput,
    },
    /// The tool had its effect and then failed.
    Failed {
        /// The execution.
        execution: ExecutionId,
        /// How it failed.
        error: StoredError,
    },
    /// The tool may have had its effect.
    Unknown {
        /// The execution.
        execution: ExecutionId,
        /// Since when.
        since: Timestamp,
        /// Why nobody can say.
        reason: String,
    },
    /// The tool ran and did nothing; the intent is free again.
    Released,
}

impl State {
    /// The name in audit records and interfaces.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Running { .. } => "running",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "unknown",
            Self::Released => "released",
        }
    }

    /// The execution that the state speaks of.
    pub const fn execution(&self) -> Option<ExecutionId> {
        match self {
            Self::Running { execution, .. }
            | Self::Completed { execution, .. }
            | Self::Failed { execution, .. }
            | Self::Unknown { execution, .. } => Some(*execution),
            Self::Pending | Self::Approved | Self::Denied | Self::Expired | Self::Cancelled | Self::Released => None,
        }
    }
}

/// What the ledger knows of one intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// [`LEDGER_RECORD_VERSION`].
    pub version: u16,
    /// Where the record lives. Checked when it is read.
    pub key: RecordKey,
    /// Counts the changes.
    pub revision: Revision,
    /// The caller's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explicit_key: Option<Arc<str>>,
    /// The digest of everything that decides the effect. Bound to a key in every state.
    pub fingerprint: Digest,
    /// The digest of the arguments that the latest state is about.
    pub arguments_hash: Digest,
    /// Whether running twice is as good as running once.
    pub safe_to_repeat: bool,
    /// For how long it is remembered that an outcome is unknown. Until somebody settles it, if not set.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "keep_unknown_ms", with = "millis")]
    pub keep_unknown: Option<Duration>,
    /// Where the intent stands.
    #[serde(flatten)]
    pub state: State,
    /// Grows with every claim.
    pub fence: u64,
    /// How many claims there were.
    pub attempt: u32,
    /// What the tool passes on to its provider: the same for every attempt.
    pub provider_key: Arc<str>,
    /// When the intent was first seen.
    pub created_at: Timestamp,
    /// Until when an equal call is the same intent.
    pub window_ends: Timestamp,
    /// The card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Earlier cards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<ClosedApproval>,
    /// Earlier executions that did nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<ExecutionId>,
    /// What runs or may have run, kept as long as that is so, for tools that can find out what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// Who settled the latest execution, where that was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
}

/// A time as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature that serde demands")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

impl Record {
    /// A record of an intent that was not seen before. The caller puts it into its first state.
    pub fn new(
        intent: &crate::Intent,
        safe_to_repeat: bool,
        provider_key: Arc<str>,
        now: Timestamp,
        window_ends: Timestamp,
    ) -> Self {
        Self {
            version: LEDGER_RECORD_VERSION,
            key: intent.record().clone(),
            // Later than that of any record that lived here before, as long as store time does not step back.
            revision: now.as_millis() << 10,
            explicit_key: intent.explicit_key().cloned(),
            fingerprint: *intent.fingerprint(),
            arguments_hash: *intent.arguments_hash(),
            safe_to_repeat,
            keep_unknown: None,
            state: State::Released,
            fence: 0,
            attempt: 0,
            provider_key,
            created_at: now,
            window_ends,
            approval: None,
            closed: Vec::new(),
            released: Vec::new(),
            arguments: None,
            settled: None,
        }
    }

    /// Whether the record was written by rules that are known here.
    pub const fn is_readable(&self) -> bool {
        1 <= self.version && self.version <= LEDGER_RECORD_VERSION
    }

    /// Every approval that this record answers for, the present one first.
    pub fn approval_ids(&self) -> impl Iterator<Item = ApprovalId> {
        self.approval.iter().map(|approval| approval.id).chain(self.closed.iter().map(|closed| closed.id))
    }

    /// Every execution that this record answers for, the present one first.
    pub fn execution_ids(&self) -> impl Iterator<Item = ExecutionId> {
        self.state.execution().into_iter().chain(self.released.iter().copied())
    }

    /// The result, unless there is none or it was dropped.
    pub fn body(&self) -> Option<&Body> {
        match &self.state {
            State::Completed { output, .. } => output.data.as_ref(),
            _ => None,
        }
    }

    /// The record without the result, which is then known to have existed.
    #[must_use]
    pub fn without_body(&self) -> Self {
        let mut record = self.clone();
        if let State::Completed { output, .. } = &mut record.state {
            output.data = None;
        }
        record
    }

    /// The record with this result in the place of the one that was taken out of it.
    #[must_use]
    pub fn with_body(mut self, body: Body) -> Self {
        if let State::Completed { output, .. } = &mut self.state {
            output.data = Some(body);
        }
        self
    }

    /// When the record may be forgotten, `None` as long as somebody still has to settle it.
    pub fn forget_at(&self) -> Option<Timestamp> {
        let unknown_since = match self.state {
            State::Running { lease_ends, .. } => lease_ends,
            State::Unknown { since, .. } => since,
            State::Pending
            | State::Approved
            | State::Denied
            | State::Expired
            | State::Cancelled
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Released => return Some(self.window_ends),
        };
        Some((unknown_since + self.keep_unknown?).max(self.window_ends))
    }
}
