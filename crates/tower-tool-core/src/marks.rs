//! What layers tell each other through the call.
//!
//! Marks only *grant* or *demand*, and losing them refuses: dispatch runs nothing for a call that has no entry, and nothing that
//! is demanded without the grant for it. So a layer that builds a new call instead of passing its own on, or a stack in which
//! a layer was forgotten, refuses instead of running something that nobody approved.
//!
//! Users of the stack need none of this. It is public for those who write layers of the same standing as ours.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::canonical::HashKey;
use crate::{ApprovalId, Claim, Grant, Intent, Invoke, ToolError, ToolSpec};

/// What a toolset knows of one of its tools: spec, compiled check, and the service unless the tool is only declared.
#[derive(Clone)]
pub struct Entry {
    spec: ToolSpec,
    check: Arc<dyn Check>,
    service: Option<Arc<dyn Invoke>>,
    hash_key: Option<HashKey>,
    step_keys: bool,
}

impl Entry {
    /// An entry of a toolset.
    pub fn new(spec: ToolSpec, check: Arc<dyn Check>, service: Option<Arc<dyn Invoke>>) -> Self {
        Self { spec, check, service, hash_key: None, step_keys: false }
    }

    /// Hashes arguments with a deployment's key.
    #[must_use]
    pub fn with_hash_key(mut self, key: Option<HashKey>) -> Self {
        self.hash_key = key;
        self
    }

    /// Makes the run and its step part of the intent, for calls that carry both and no key of their own.
    #[must_use]
    pub fn with_step_keys(mut self, on: bool) -> Self {
        self.step_keys = on;
        self
    }

    /// The deployment's key for hashes of arguments.
    pub fn hash_key(&self) -> Option<&HashKey> {
        self.hash_key.as_ref()
    }

    /// Whether the run and its step are part of the intent.
    pub fn has_step_keys(&self) -> bool {
        self.step_keys
    }

    /// The spec.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The compiled schemas.
    pub fn check(&self) -> &dyn Check {
        &*self.check
    }

    /// The service, unless the client executes this tool.
    pub fn service(&self) -> Option<&Arc<dyn Invoke>> {
        self.service.as_ref()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, check: _, service, hash_key, step_keys } = self;
        f.debug_struct("Entry")
            .field("spec", &spec.name())
            .field("declared_only", &service.is_none())
            .field("hash_key", hash_key)
            .field("step_keys", step_keys)
            .finish_non_exhaustive()
    }
}

/// A tool's schemas, compiled.
pub trait Check: Send + Sync + 'static {
    /// Checks arguments and gives their one normal form.
    ///
    /// # Errors
    ///
    /// `invalid_arguments`, with pointers and rules but no values.
    fn arguments(&self, arguments: &Arc<Value>) -> Result<Arc<Value>, ToolError>;

    /// Whether checking these arguments takes so long that it should not happen on an asynchronous worker.
    fn takes_long(&self, arguments: &Value) -> bool {
        let _ = arguments;
        false
    }

    /// Checks a result.
    ///
    /// # Errors
    ///
    /// If the tool broke its own output schema.
    fn output(&self, output: &Value) -> Result<(), ToolError>;
}

/// The kinds of layers whose order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Audit of the call.
    Audit,
    /// Audit of the execution, directly around dispatch.
    ExecutionAudit,
    /// Coming back with an approval, and waiting for one.
    Resume,
    /// Rate limit.
    RateLimit,
    /// Schema validation.
    Validate,
    /// Authorization.
    Authorize,
    /// Approval.
    Approval,
    /// Idempotency.
    Idempotency,
    /// Output limit.
    OutputLimit,
    /// Redaction of the output.
    Redact,
}

impl Kind {
    /// The name in messages and audit records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::ExecutionAudit => "audit(execution)",
            Self::Resume => "resume",
            Self::RateLimit => "rate_limit",
            Self::Validate => "validate",
            Self::Authorize => "authorize",
            Self::Approval => "approval",
            Self::Idempotency => "idempotency",
            Self::OutputLimit => "output_limit",
            Self::Redact => "redact",
        }
    }

    /// Whether a layer of this kind would let through what it does not know.
    const fn needs_lookup(self) -> bool {
        !matches!(self, Self::Audit | Self::ExecutionAudit | Self::RateLimit | Self::OutputLimit | Self::Redact)
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Orders that are known to be wrong: the outer layer, the inner layer, and what would go wrong.
const WRONG_ORDERS: &[(Kind, Kind, &str)] = &[
    (Kind::Resume, Kind::Audit, "the wait for a decision would leave no trace"),
    (Kind::RateLimit, Kind::Audit, "a refused call would leave no trace"),
    (Kind::Validate, Kind::Audit, "a refused call would leave no trace"),
    (Kind::Authorize, Kind::Audit, "a refused call would leave no trace"),
    (Kind::Approval, Kind::Audit, "a refused call would leave no trace"),
    (Kind::Idempotency, Kind::Audit, "a replayed call would leave no trace"),
    (Kind::Validate, Kind::Resume, "stored arguments would not be validated again"),
    (Kind::Approval, Kind::Resume, "the call would be asked about before it can say that it was approved"),
    (Kind::Idempotency, Kind::Resume, "a claim would be held while a person thinks"),
    (Kind::Approval, Kind::Validate, "a person would be asked about arguments that nobody has checked"),
    (Kind::Idempotency, Kind::Validate, "equal intents would not be recognised"),
    (Kind::Idempotency, Kind::Approval, "a refusal would be held for a result"),
    (Kind::Redact, Kind::Idempotency, "the ledger would keep the result unredacted"),
    (Kind::Idempotency, Kind::Idempotency, "the call is already claimed"),
];

#[derive(Clone, Debug, Default)]
enum Lookup {
    /// No toolset has seen the call.
    #[default]
    None,
    Unknown,
    Known(Arc<Entry>),
}

/// The marks on a call. See the [module docs](self).
#[derive(Clone, Default)]
pub struct Marks {
    lookup: Lookup,
    intent: Option<Arc<Intent>>,
    resumed: Option<(ApprovalId, Arc<Intent>)>,
    demanded: bool,
    grant: Option<Arc<Grant>>,
    claim: Option<Arc<Claim>>,
    passed: u16,
}

impl Marks {
    /// The marks of a call that a toolset has just looked up, `None` if it has no such tool.
    pub fn looked_up(entry: Option<Arc<Entry>>) -> Self {
        let demanded = entry.as_ref().is_some_and(|entry| entry.spec.demands_approval());
        let lookup = entry.map_or(Lookup::Unknown, Lookup::Known);
        Self { lookup, demanded, ..Self::default() }
    }

    /// The entry of the tool, if a toolset found one.
    pub fn entry(&self) -> Option<&Arc<Entry>> {
        match &self.lookup {
            Lookup::Known(entry) => Some(entry),
            Lookup::None | Lookup::Unknown => None,
        }
    }

    /// Whether a toolset looked the name up and has no such tool.
    pub fn is_unknown_tool(&self) -> bool {
        matches!(self.lookup, Lookup::Unknown)
    }

    /// Whether a toolset looked the name up at all.
    pub fn is_looked_up(&self) -> bool {
        !matches!(self.lookup, Lookup::None)
    }

    /// What the caller wants.
    pub fn intent(&self) -> Option<&Arc<Intent>> {
        self.intent.as_ref()
    }

    /// The approval that the call was resumed with, and the intent it was shown under.
    pub fn resumed(&self) -> Option<(ApprovalId, &Arc<Intent>)> {
        self.resumed.as_ref().map(|(approval, intent)| (*approval, intent))
    }

    /// Whether dispatch must see a grant.
    pub fn is_demanded(&self) -> bool {
        self.demanded
    }

    /// Makes dispatch insist on a grant. There is no way back.
    pub fn demand(&mut self) {
        self.demanded = true;
    }

    /// The grant.
    pub fn grant(&self) -> Option<&Arc<Grant>> {
        self.grant.as_ref()
    }

    /// Puts a grant on the call.
    pub fn set_grant(&mut self, grant: Grant) {
        self.grant = Some(Arc::new(grant));
    }

    /// The claim.
    pub fn claim(&self) -> Option<&Arc<Claim>> {
        self.claim.as_ref()
    }

    /// Puts a claim on the call.
    pub fn set_claim(&mut self, claim: Claim) {
        self.claim = Some(Arc::new(claim));
    }

    /// Whether a layer of this kind has seen the call.
    pub fn has_passed(&self, kind: Kind) -> bool {
        self.passed & kind.bit() != 0
    }

    pub(crate) fn set_intent(&mut self, intent: Arc<Intent>) {
        self.forget_arguments();
        self.intent = Some(intent);
    }

    pub(crate) fn set_resumed(&mut self, approval: ApprovalId, intent: Arc<Intent>) {
        self.resumed = Some((approval, intent));
    }

    pub(crate) fn forget_arguments(&mut self) {
        self.intent = None;
        self.grant = None;
        self.claim = None;
    }

    pub(crate) fn enter(&mut self, kind: Kind) -> Result<(), ToolError> {
        if !self.is_looked_up() && kind.needs_lookup() {
            return Err(ToolError::internal(format!(
                "no toolset looked this call up before `{kind}` saw it: put the layer on with `Toolset::layer`, and let no \
                 layer outside it build a new call instead of passing its own on"
            )));
        }
        for (outer, inner, why) in WRONG_ORDERS {
            if *inner == kind && self.has_passed(*outer) {
                let mend =
                    if outer == inner { "leave one of them out".to_owned() } else { format!("put `{inner}` outside") };
                return Err(ToolError::internal(format!("`{inner}` stands inside `{outer}`: {why}; {mend}")));
            }
        }
        self.passed |= kind.bit();
        Ok(())
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lookup, intent, resumed, demanded, grant, claim, passed } = self;
        let lookup = match lookup {
            Lookup::None => "none",
            Lookup::Unknown => "unknown",
            Lookup::Known(_) => "known",
        };
        f.debug_struct("Marks")
            .field("lookup", &lookup)
            .field("intent", &intent.as_ref().map(|intent| intent.record().digest))
            .field("resumed", &resumed.as_ref().map(|(approval, _)| approval))
            .field("demanded", demanded)
            .field("granted", &grant.is_some())
            .field("claimed", &claim.is_some())
            .field("passed", &format_args!("{passed:#b}"))
            .finish()
    }
}
