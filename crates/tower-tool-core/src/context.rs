use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{ApprovalId, ExecutionId, Timestamp};

/// A name, a scope or a key that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    what: &'static str,
    why: &'static str,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.why)
    }
}

impl std::error::Error for NameError {}

/// Longest accepted scope or idempotency key, in bytes.
const LONGEST: usize = 256;

fn check(what: &'static str, text: &str) -> Result<(), NameError> {
    let why = if text.trim().is_empty() {
        "is empty or blank"
    } else if text.len() > LONGEST {
        "is longer than 256 bytes"
    } else if text.chars().any(char::is_control) {
        "has control characters"
    } else {
        return Ok(());
    };
    Err(NameError { what, why })
}

/// Who calls: tenant, actor, agent, roles, and when the actor authenticated.
///
/// Only trusted code makes one. It is not `Deserialize`, so no part of it can come from a caller's data:
///
/// ```compile_fail
/// let forged: tower_tool_core::Principal = serde_json::from_str(r#"{"tenant":"acme","actor":"root"}"#).unwrap();
/// ```
///
/// ```
/// use tower_tool_core::Principal;
///
/// let principal = Principal::new("acme", "user_42").with_agent("refund-worker").with_role("support");
/// assert_eq!(principal.tenant(), "acme");
/// assert!(principal.has_role("support"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    tenant: Arc<str>,
    actor: Arc<str>,
    agent: Option<Arc<str>>,
    roles: Arc<[Arc<str>]>,
    authenticated_at: Option<Timestamp>,
}

impl Principal {
    /// An authenticated actor of a tenant.
    pub fn new(tenant: impl Into<Arc<str>>, actor: impl Into<Arc<str>>) -> Self {
        Self { tenant: tenant.into(), actor: actor.into(), agent: None, roles: Arc::new([]), authenticated_at: None }
    }

    /// Nobody in particular: an empty actor. Tools with effects refuse such calls.
    pub fn anonymous(tenant: impl Into<Arc<str>>) -> Self {
        Self::new(tenant, "")
    }

    /// Names the agent that acts for the actor.
    #[must_use]
    pub fn with_agent(mut self, agent: impl Into<Arc<str>>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Adds a role.
    #[must_use]
    pub fn with_role(mut self, role: impl Into<Arc<str>>) -> Self {
        self.roles = self.roles.iter().cloned().chain([role.into()]).collect();
        self
    }

    /// Says when the actor authenticated.
    #[must_use]
    pub fn with_authenticated_at(mut self, at: Timestamp) -> Self {
        self.authenticated_at = Some(at);
        self
    }

    /// The tenant.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The actor, empty if anonymous.
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// The agent that acts for the actor.
    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The roles, in the order they were given.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.iter().map(AsRef::as_ref)
    }

    /// Whether the actor has this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles().any(|own| own == role)
    }

    /// When the actor authenticated.
    pub fn authenticated_at(&self) -> Option<Timestamp> {
        self.authenticated_at
    }

    /// Whether nobody is known to call.
    pub fn is_anonymous(&self) -> bool {
        self.actor.is_empty()
    }

    pub(crate) fn shared(&self) -> (&Arc<str>, &Arc<str>) {
        (&self.tenant, &self.actor)
    }
}

/// The session that a call belongs to. Equal intents are one intent within a scope, and two in two scopes.
///
/// Like [`Principal`] it is made by trusted code only, and is not `Deserialize`:
///
/// ```compile_fail
/// let forged: tower_tool_core::Scope = serde_json::from_str("\"session-1\"").unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope(Arc<str>);

impl Scope {
    /// Names a scope: 1 to 256 bytes, not blank, no control characters.
    ///
    /// # Errors
    ///
    /// If the name is none of that.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, NameError> {
        let name = name.into();
        check("the scope", &name)?;
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

/// A caller's own key for an intent: equal keys in one scope and tool are one intent, whatever the wording.
///
/// JSON-RPC ids and the ids that a model gives its calls are not such keys: they repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Takes a key: 1 to 256 bytes, not blank, no control characters.
    ///
    /// # Errors
    ///
    /// If the key is none of that. A blank key would make all calls one.
    pub fn new(key: impl Into<Arc<str>>) -> Result<Self, NameError> {
        let key = key.into();
        check("the idempotency key", &key)?;
        Ok(Self(key))
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

/// What a tool with effects may know of its own execution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Execution {
    /// The id under which the ledger knows the execution.
    pub id: ExecutionId,
    /// A key to pass on to a provider as *its* idempotency key: the same for every attempt of this intent.
    pub provider_key: Arc<str>,
    /// Grows with every claim of this intent; a resource can refuse a smaller one than it has seen.
    pub fence: u64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

impl Execution {
    /// Describes an execution.
    pub fn new(id: ExecutionId, provider_key: impl Into<Arc<str>>, fence: u64, attempt: u32) -> Self {
        Self { id, provider_key: provider_key.into(), fence, attempt }
    }
}

/// What trusted code knows of a call: who, where, until when, under which key, with which approval.
///
/// It is not `Deserialize`, so that nothing in it can come from a caller's data:
///
/// ```compile_fail
/// let forged: tower_tool_core::CallContext = serde_json::from_str("{}").unwrap();
/// ```
///
/// ```
/// use tower_tool_core::{CallContext, IdempotencyKey, Principal, Scope};
///
/// let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?)
///     .with_run("run-7")
///     .with_key(IdempotencyKey::new("order-17")?);
/// assert_eq!(context.run(), Some("run-7"));
/// # Ok::<(), tower_tool_core::NameError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CallContext {
    principal: Principal,
    scope: Option<Scope>,
    run: Option<Arc<str>>,
    step: Option<Arc<str>>,
    deadline: Option<Instant>,
    decision_wait: Option<Duration>,
    key: Option<IdempotencyKey>,
    approval: Option<ApprovalId>,
    target: Option<Arc<Value>>,
    execution: Option<Execution>,
}

impl CallContext {
    /// A call by `principal` in `scope`.
    pub fn new(principal: Principal, scope: Scope) -> Self {
        Self { scope: Some(scope), ..Self::without_scope(principal) }
    }

    /// A call outside any session. Tools with effects refuse it.
    pub fn without_scope(principal: Principal) -> Self {
        Self {
            principal,
            scope: None,
            run: None,
            step: None,
            deadline: None,
            decision_wait: None,
            key: None,
            approval: None,
            target: None,
            execution: None,
        }
    }

    /// Names the run of the agent that this call belongs to.
    #[must_use]
    pub fn with_run(mut self, run: impl Into<Arc<str>>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Names the step within the run.
    #[must_use]
    pub fn with_step(mut self, step: impl Into<Arc<str>>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// Until when this caller waits. What has begun goes on; the caller is told that it is in progress.
    ///
    /// Under tokio's paused clock take `tokio::time::Instant::now()` and convert it.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long this caller waits for a person's decision before it is told that an approval is required. Not at all unless
    /// set.
    #[must_use]
    pub fn with_decision_wait(mut self, wait: Duration) -> Self {
        self.decision_wait = Some(wait);
        self
    }

    /// The caller's own key for what it wants.
    #[must_use]
    pub fn with_key(mut self, key: IdempotencyKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Comes back with an approval.
    #[must_use]
    pub fn with_approval(mut self, approval: ApprovalId) -> Self {
        self.approval = Some(approval);
        self
    }

    /// What decides the effect beside the arguments, such as the environment. It is part of the intent.
    #[must_use]
    pub fn with_target(mut self, target: Value) -> Self {
        self.target = Some(Arc::new(target));
        self
    }

    /// The context without the caller's key, approval and wait, which are for one call alone: what a tool gets, and may call other
    /// tools in.
    #[must_use]
    pub fn without_credentials(mut self) -> Self {
        self.key = None;
        self.approval = None;
        self.decision_wait = None;
        self
    }

    /// Tells the tool of its execution. For the layer that claims.
    #[must_use]
    pub fn with_execution(mut self, execution: Execution) -> Self {
        self.execution = Some(execution);
        self
    }

    /// Who calls.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The session.
    pub fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    /// The run of the agent.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// The step within the run.
    pub fn step(&self) -> Option<&str> {
        self.step.as_deref()
    }

    /// Until when the caller waits.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long the caller waits for a decision.
    pub fn decision_wait(&self) -> Option<Duration> {
        self.decision_wait
    }

    /// The caller's own key.
    pub fn key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// The approval that the caller came back with.
    pub fn approval(&self) -> Option<ApprovalId> {
        self.approval
    }

    /// What decides the effect beside the arguments.
    pub fn target(&self) -> Option<&Value> {
        self.target.as_deref()
    }

    /// The execution that a tool with effects runs in.
    pub fn execution(&self) -> Option<&Execution> {
        self.execution.as_ref()
    }
}
