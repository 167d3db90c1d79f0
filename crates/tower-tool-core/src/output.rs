use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ExecutionId, Redacted, Timestamp};

/// Whether an answer was made for this call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Provenance {
    /// The tool ran for this call.
    #[default]
    Fresh,
    /// The tool ran earlier; this is the result of then.
    Replayed,
    /// The tool was running already; this call waited for the same result.
    Joined,
}

/// What a tool says about its effect: how others know it, and how to undo it.
///
/// ```
/// use tower_tool_core::Receipt;
///
/// let receipt = Receipt::new().with_external_id("ticket", "TK-1").with_undo("call `close_ticket` with the ticket id");
/// assert_eq!(receipt.external_ids()["ticket"], "TK-1");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    external_ids: std::collections::BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
}

impl Receipt {
    /// An empty receipt.
    pub fn new() -> Self {
        Self::default()
    }

    /// An id under which another system knows the effect.
    #[must_use]
    pub fn with_external_id(mut self, system: impl Into<String>, id: impl Into<String>) -> Self {
        self.external_ids.insert(system.into(), id.into());
        self
    }

    /// How to undo the effect, in words a model or a person can follow.
    #[must_use]
    pub fn with_undo(mut self, undo: impl Into<String>) -> Self {
        self.undo = Some(undo.into());
        self
    }

    /// Ids by system.
    pub fn external_ids(&self) -> &std::collections::BTreeMap<String, String> {
        &self.external_ids
    }

    /// How to undo the effect.
    pub fn undo(&self) -> Option<&str> {
        self.undo.as_deref()
    }
}

/// What a tool answered, and what the layers say about the answer.
///
/// `Debug` does not show the data.
///
/// ```
/// use serde_json::json;
/// use tower_tool_core::{Provenance, ToolOutput};
///
/// let output = ToolOutput::new(json!({ "ticket": "TK-1" }));
/// assert_eq!(output.data()["ticket"], "TK-1");
/// assert_eq!(output.provenance(), Provenance::Fresh);
/// ```
#[derive(Clone, PartialEq)]
pub struct ToolOutput {
    data: Arc<Value>,
    receipt: Option<Arc<Receipt>>,
    source: Option<Arc<str>>,
    truncated: bool,
    observed_at: Option<Timestamp>,
    provenance: Provenance,
    degraded: Vec<Arc<str>>,
    execution: Option<ExecutionId>,
}

impl ToolOutput {
    /// An answer.
    pub fn new(data: impl Into<Arc<Value>>) -> Self {
        Self {
            data: data.into(),
            receipt: None,
            source: None,
            truncated: false,
            observed_at: None,
            provenance: Provenance::Fresh,
            degraded: Vec::new(),
            execution: None,
        }
    }

    /// Adds the receipt of an effect.
    #[must_use]
    pub fn with_receipt(mut self, receipt: impl Into<Arc<Receipt>>) -> Self {
        self.receipt = Some(receipt.into());
        self
    }

    /// Names where the data comes from.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Arc<str>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says that the data is not all there is.
    #[must_use]
    pub fn with_truncated(mut self, truncated: bool) -> Self {
        self.truncated = truncated;
        self
    }

    /// Says when the data was true.
    #[must_use]
    pub fn with_observed_at(mut self, at: Timestamp) -> Self {
        self.observed_at = Some(at);
        self
    }

    /// Says whether the answer was made for this call.
    #[must_use]
    pub fn with_provenance(mut self, provenance: Provenance) -> Self {
        self.provenance = provenance;
        self
    }

    /// Names a weaker mode that was in force.
    #[must_use]
    pub fn with_degraded(mut self, mode: impl Into<Arc<str>>) -> Self {
        self.degraded.push(mode.into());
        self
    }

    /// Names the execution that made the answer.
    #[must_use]
    pub fn with_execution(mut self, execution: ExecutionId) -> Self {
        self.execution = Some(execution);
        self
    }

    /// Changes the data and leaves the rest.
    #[must_use]
    pub fn map_data(mut self, change: impl FnOnce(Arc<Value>) -> Arc<Value>) -> Self {
        self.data = change(self.data);
        self
    }

    /// The data.
    pub fn data(&self) -> &Arc<Value> {
        &self.data
    }

    /// The receipt of the effect.
    pub fn receipt(&self) -> Option<&Arc<Receipt>> {
        self.receipt.as_ref()
    }

    /// Where the data comes from.
    pub fn source(&self) -> Option<&Arc<str>> {
        self.source.as_ref()
    }

    /// Whether the data is not all there is.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// When the data was true.
    pub fn observed_at(&self) -> Option<Timestamp> {
        self.observed_at
    }

    /// Whether the answer was made for this call.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// The weaker modes that were in force.
    pub fn degraded(&self) -> &[Arc<str>] {
        &self.degraded
    }

    /// The execution that made the answer.
    pub fn execution(&self) -> Option<ExecutionId> {
        self.execution
    }
}

impl From<Value> for ToolOutput {
    fn from(data: Value) -> Self {
        Self::new(data)
    }
}

impl fmt::Debug for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { data: _, receipt, source, truncated, observed_at, provenance, degraded, execution } = self;
        f.debug_struct("ToolOutput")
            .field("data", &Redacted::<()>::MARK)
            .field("receipt", &receipt.is_some())
            .field("source", source)
            .field("truncated", truncated)
            .field("observed_at", observed_at)
            .field("provenance", provenance)
            .field("degraded", degraded)
            .field("execution", execution)
            .finish()
    }
}
