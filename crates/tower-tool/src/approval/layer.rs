use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;
use tower_tool_core::ToolCall;

use super::service::Approval;
use crate::ledger::Ledger;
use crate::redact::Redactor;

/// Says of a call whether it needs approval, and why: the reason is shown on the card.
///
/// Implemented for closures. It sees validated arguments. A rule that panics lets nothing through.
pub trait ApprovalRule: Send + Sync + 'static {
    /// Why a person must decide, `None` if nobody has to.
    fn reason(&self, call: &ToolCall) -> Option<String>;
}

impl<F> ApprovalRule for F
where
    F: Fn(&ToolCall) -> Option<String> + Send + Sync + 'static,
{
    fn reason(&self, call: &ToolCall) -> Option<String> {
        self(call)
    }
}

#[derive(Clone, Default)]
pub(super) struct Rules {
    pub(super) tools: Arc<HashSet<String>>,
    pub(super) when: Option<Arc<dyn ApprovalRule>>,
}

/// Asks a person before something happens. See the [module docs](super).
#[derive(Clone)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct ApprovalLayer {
    ledger: Ledger,
    redactor: Redactor,
    rules: Rules,
}

impl ApprovalLayer {
    /// Asks for what the specs demand.
    pub fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), redactor: Redactor::new(), rules: Rules::default() }
    }

    /// Asks for these tools too.
    pub fn tools<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.rules.tools = Arc::new(names.into_iter().map(Into::into).collect());
        self
    }

    /// Asks where this rule gives a reason.
    pub fn when(mut self, rule: impl ApprovalRule) -> Self {
        self.rules.when = Some(Arc::new(rule));
        self
    }

    /// What masks the arguments on cards.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }
}

impl fmt::Debug for ApprovalLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ledger, redactor, rules } = self;
        f.debug_struct("ApprovalLayer")
            .field("ledger", ledger)
            .field("redactor", redactor)
            .field("rules", rules)
            .finish()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tools, when } = self;
        f.debug_struct("Rules").field("tools", tools).field("when", &when.as_ref().map(|_| "<rule>")).finish()
    }
}

impl<S> Layer<S> for ApprovalLayer {
    type Service = Approval<S>;

    fn layer(&self, inner: S) -> Approval<S> {
        Approval::new(inner, self.ledger.clone(), self.redactor.clone(), self.rules.clone())
    }
}
