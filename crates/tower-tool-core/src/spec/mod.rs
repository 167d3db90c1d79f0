//! What is known of a tool before it is called: one source for what the model sees, what is checked, and what is decoded.

mod builder;
mod lint;
mod name;
pub mod pointer;
mod schema;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

pub use builder::{SpecBuilder, SpecError};
pub use lint::Lint;
pub use name::{ToolNameError, check_name, folded_name};

use crate::canonical::Hasher;
use crate::reconcile::ReconcileHook;
use crate::{Digest, Risk};

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    description: String,
    version: String,
    risk: Risk,
    demands_approval: bool,
    safe_to_repeat: bool,
    wording: Vec<String>,
    replays_other_wording: bool,
    reading: Reading,
    input_schema: Value,
    output_schema: Option<Value>,
    reconcile: Option<ReconcileHook>,
    definition: Digest,
}

/// The spec of a tool that takes an `I` and gives an `O`. Cheap to clone.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tower_tool_core::{Risk, ToolSpec};
/// use tower_tool_core::schemars::{self, JsonSchema};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct AddTodo {
///     /// What is to be done.
///     title: String,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Todo {
///     id: u64,
/// }
///
/// let spec = ToolSpec::builder("add_todo")
///     .description("Add an item to the list. Use when the user wants to remember something.")
///     .risk(Risk::ReversibleWrite)
///     .input::<AddTodo>()
///     .output::<Todo>()
///     .build()?;
/// assert_eq!(spec.input_schema()["properties"]["title"]["type"], "string");
/// # Ok::<(), tower_tool_core::SpecError>(())
/// ```
pub struct ToolSpec<I = Value, O = Value> {
    inner: Arc<Inner>,
    types: PhantomData<fn(I) -> O>,
}

/// How arguments are read into their normal form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Text is taken for a number, a boolean, an array or an object where the schema takes nothing else.
    pub lenient: bool,
    /// An optional property that is `null` is not as if absent.
    pub keeps_null: bool,
    /// An optional property that is its spelt-out default is not as if absent.
    pub keeps_defaults: bool,
}

impl Reading {
    /// The same, with text taken for text.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.lenient = false;
        self
    }
}

impl ToolSpec {
    /// Begins a spec. Unless told otherwise the tool takes no arguments, gives any value, and is [`Risk::HighImpact`].
    pub fn builder(name: impl Into<String>) -> SpecBuilder {
        SpecBuilder::new(name.into())
    }
}

impl<I, O> ToolSpec<I, O> {
    /// The same spec without its types.
    pub fn erase(&self) -> ToolSpec {
        ToolSpec { inner: Arc::clone(&self.inner), types: PhantomData }
    }

    /// The name that a model calls.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the model reads.
    pub fn description(&self) -> &str {
        &self.inner.description
    }

    /// The author's version of the tool.
    pub fn version(&self) -> &str {
        &self.inner.version
    }

    /// How much harm a call can do.
    pub fn risk(&self) -> Risk {
        self.inner.risk
    }

    /// Whether a call changes something outside.
    pub fn has_effects(&self) -> bool {
        self.inner.risk.has_effects()
    }

    /// Whether every call needs a grant, whatever stands around the tool.
    pub fn demands_approval(&self) -> bool {
        self.inner.demands_approval || self.inner.risk.demands_approval()
    }

    /// Whether running twice is as good as running once: a read, or a tool whose author says so.
    pub fn is_safe_to_repeat(&self) -> bool {
        self.inner.safe_to_repeat || !self.has_effects()
    }

    /// The properties whose text a model words anew from try to try: they are no part of the intent.
    pub fn wording(&self) -> &[String] {
        &self.inner.wording
    }

    /// Whether a call that differs in wording alone is answered with the first result instead of `DUPLICATE_INTENT`.
    pub fn replays_other_wording(&self) -> bool {
        self.inner.replays_other_wording
    }

    /// How arguments are read into their normal form.
    pub fn reading(&self) -> Reading {
        self.inner.reading
    }

    /// The JSON Schema of the arguments: an object that refuses unknown properties unless it says otherwise.
    pub fn input_schema(&self) -> &Value {
        &self.inner.input_schema
    }

    /// The JSON Schema of the result.
    pub fn output_schema(&self) -> Option<&Value> {
        self.inner.output_schema.as_ref()
    }

    /// The hook that finds out what became of an execution whose outcome is unknown.
    pub fn reconcile_hook(&self) -> Option<&ReconcileHook> {
        self.inner.reconcile.as_ref()
    }

    /// The digest of the definition, which the hook is no part of. An approval holds only for the definition that was shown.
    pub fn definition_digest(&self) -> &Digest {
        &self.inner.definition
    }

    /// What the author should look at again. A toolset warns of it when it is built.
    pub fn lints(&self) -> Vec<Lint> {
        lint::lints(&self.erase())
    }

    /// What the model sees.
    pub fn definition(&self) -> Definition {
        Definition { spec: self.erase() }
    }
}

impl<I, O> Clone for ToolSpec<I, O> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for ToolSpec<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSpec")
            .field("name", &self.inner.name)
            .field("version", &self.inner.version)
            .field("risk", &self.inner.risk)
            .field("definition", &self.inner.definition)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn digest(&self) -> Digest {
        let facts = json!({
            "name": *self.name,
            "description": self.description,
            "version": self.version,
            "risk": self.risk,
            "demands_approval": self.demands_approval,
            "safe_to_repeat": self.safe_to_repeat,
            "wording": self.wording,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
        });
        Hasher::new("tower-tool definition 1", None).value(&facts, &[]).finish()
    }
}

/// A tool as it is shown to a model: name, description, schemas, risk and version.
///
/// Serialises to `{"name", "description", "version", "risk", "input_schema", "output_schema"?}`.
#[derive(Clone, Debug)]
pub struct Definition {
    spec: ToolSpec,
}

impl Definition {
    /// The spec that is shown.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }
}

impl Serialize for Definition {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            name: &'a str,
            description: &'a str,
            version: &'a str,
            risk: Risk,
            input_schema: &'a Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            output_schema: Option<&'a Value>,
        }
        let spec = &self.spec;
        Shown {
            name: spec.name(),
            description: spec.description(),
            version: spec.version(),
            risk: spec.risk(),
            input_schema: spec.input_schema(),
            output_schema: spec.output_schema(),
        }
        .serialize(serializer)
    }
}
