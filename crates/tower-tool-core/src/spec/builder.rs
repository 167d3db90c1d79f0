use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Inner, Reading, ToolNameError, ToolSpec, check_name, schema};
use crate::reconcile::{Inquiry, ReconcileHook, Reconciled};
use crate::{Digest, Risk, ToolError};

/// A spec that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The name is not one.
    Name(ToolNameError),
    /// The input schema does not describe an object.
    InputNotAnObject {
        /// The tool.
        tool: String,
    },
    /// A wording field is not among the properties, or there is nothing but wording: then all calls would be one.
    Wording {
        /// The tool.
        tool: String,
        /// The property, `None` if nothing else is left.
        property: Option<String>,
    },
    /// The description is empty, so a model could not know when to call the tool.
    NoDescription {
        /// The tool.
        tool: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::InputNotAnObject { tool } => {
                write!(f, "the input schema of `{tool}` must have `\"type\": \"object\"` at its root")
            }
            Self::Wording { tool, property: Some(property) } => {
                write!(f, "the wording field `{property}` of `{tool}` is not among the properties of its input schema")
            }
            Self::Wording { tool, property: None } => {
                write!(f, "every property of `{tool}` is a wording field, so all its calls would be one intent")
            }
            Self::NoDescription { tool } => {
                write!(f, "`{tool}` has no description: say what it does, when to use it and when not to")
            }
        }
    }
}

impl std::error::Error for SpecError {}

/// Builds a [`ToolSpec`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct SpecBuilder<I = Value, O = Value> {
    inner: Inner,
    types: PhantomData<fn(I) -> O>,
}

impl SpecBuilder {
    pub(super) fn new(name: String) -> Self {
        let inner = Inner {
            name: name.into(),
            description: String::new(),
            version: "1".to_owned(),
            risk: Risk::default(),
            demands_approval: false,
            safe_to_repeat: false,
            wording: Vec::new(),
            replays_other_wording: false,
            reading: Reading::default(),
            input_schema: json!({ "type": "object", "properties": {} }),
            output_schema: None,
            reconcile: None,
            definition: Digest::from_bytes([0; 32]),
        };
        Self { inner, types: PhantomData }
    }
}

impl<I, O> SpecBuilder<I, O> {
    /// What the model reads: what the tool does, when to use it and when not to.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.inner.description = description.into();
        self
    }

    /// The author's version of the tool, `1` unless set.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.inner.version = version.into();
        self
    }

    /// How much harm a call can do, [`Risk::HighImpact`] unless set.
    pub fn risk(mut self, risk: Risk) -> Self {
        self.inner.risk = risk;
        self
    }

    /// Every call needs a grant, whatever the risk.
    pub fn demand_approval(mut self) -> Self {
        self.inner.demands_approval = true;
        self
    }

    /// Running twice is as good as running once, although the tool has effects. Only say so of a tool that itself recognises
    /// what it has done already.
    pub fn safe_to_repeat(mut self) -> Self {
        self.inner.safe_to_repeat = true;
        self
    }

    /// Names properties whose text a model words anew from try to try: free text such as a description. They are no part of the
    /// intent; everything else is.
    pub fn wording<N: Into<String>>(mut self, properties: impl IntoIterator<Item = N>) -> Self {
        self.inner.wording = properties.into_iter().map(Into::into).collect();
        self
    }

    /// A call that differs in wording alone is answered with the first result, marked as replayed, instead of
    /// `DUPLICATE_INTENT`.
    pub fn replay_other_wording(mut self) -> Self {
        self.inner.replays_other_wording = true;
        self
    }

    /// How to find out what became of an execution whose outcome nobody knows, such as by asking the provider with the key that
    /// the tool has passed on to it. It is asked before anybody is told that the outcome is unknown, and an error of it leaves
    /// the outcome unknown. The arguments are kept with the execution for it until the outcome is known.
    ///
    /// It must not do what the tool does. Say [`NotDone`](Reconciled::NotDone) only of what will not happen any more: the intent
    /// is free again then, and a request that is still on its way would be a second effect.
    ///
    /// Names its types after [`input`](Self::input) and [`output`](Self::output) have set them.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_tool_core::{Inquiry, Reconciled, Risk, ToolSpec};
    ///
    /// let spec = ToolSpec::builder("refund")
    ///     .description("Refund a payment. Use when the customer is owed money.")
    ///     .risk(Risk::Critical)
    ///     .reconcile(|inquiry: Inquiry| async move {
    ///         // Ask the provider for the payment with the key `inquiry.execution.provider_key`.
    ///         Ok(Reconciled::done(json!({ "refund": "re_1" })))
    ///     })
    ///     .build()?;
    /// assert!(spec.reconcile_hook().is_some());
    /// # Ok::<(), tower_tool_core::SpecError>(())
    /// ```
    pub fn reconcile<F, Fut>(mut self, hook: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(Inquiry<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reconciled<O>, ToolError>> + Send + 'static,
    {
        self.inner.reconcile = Some(ReconcileHook::new(hook));
        self
    }

    /// Takes text for a number, a boolean, an array or an object where the schema takes nothing else. What cannot be read so stays
    /// text, and is refused.
    pub fn lenient(mut self) -> Self {
        self.inner.reading.lenient = true;
        self
    }

    /// `null` means something for this tool: an optional property that is `null` is not as if absent.
    pub fn keep_null(mut self) -> Self {
        self.inner.reading.keeps_null = true;
        self
    }

    /// Spelling out a default means something for this tool: it is not as if absent.
    pub fn keep_defaults(mut self) -> Self {
        self.inner.reading.keeps_defaults = true;
        self
    }

    /// Takes the arguments as a `T`, whose doc comments become what the model reads.
    pub fn input<T: JsonSchema>(self) -> SpecBuilder<T, O> {
        self.retype(|inner| inner.input_schema = schema_for::<T>(false))
    }

    /// Gives the result as a `T`.
    pub fn output<T: JsonSchema>(self) -> SpecBuilder<I, T> {
        self.retype(|inner| inner.output_schema = Some(schema_for::<T>(true)))
    }

    /// Takes the arguments as a `Value` that fits this JSON Schema.
    pub fn input_schema(self, schema: Value) -> SpecBuilder<Value, O> {
        self.retype(|inner| inner.input_schema = schema)
    }

    /// Gives the result as a `Value` that fits this JSON Schema.
    pub fn output_schema(self, schema: Value) -> SpecBuilder<I, Value> {
        self.retype(|inner| inner.output_schema = Some(schema))
    }

    fn retype<I2, O2>(mut self, change: impl FnOnce(&mut Inner)) -> SpecBuilder<I2, O2> {
        change(&mut self.inner);
        SpecBuilder { inner: self.inner, types: PhantomData }
    }

    /// Builds the spec.
    ///
    /// # Errors
    ///
    /// If the name is not one, the description is missing, the input schema does not describe an object, or its wording fields
    /// are not some of its properties.
    pub fn build(self) -> Result<ToolSpec<I, O>, SpecError> {
        let mut inner = self.inner;
        check_name(&inner.name).map_err(SpecError::Name)?;
        let tool = || inner.name.to_string();
        if inner.description.trim().is_empty() {
            return Err(SpecError::NoDescription { tool: tool() });
        }
        if inner.input_schema.get("type").is_none_or(|kind| kind != "object") {
            return Err(SpecError::InputNotAnObject { tool: tool() });
        }
        check_wording(&inner)?;
        schema::close(&mut inner.input_schema);
        schema::bound_integers(&mut inner.input_schema);
        inner.definition = inner.digest();
        Ok(ToolSpec { inner: Arc::new(inner), types: PhantomData })
    }
}

fn check_wording(inner: &Inner) -> Result<(), SpecError> {
    let Some(first) = inner.wording.first() else { return Ok(()) };
    let refuse = |property| Err(SpecError::Wording { tool: inner.name.to_string(), property });
    let Some(properties) = inner.input_schema.get("properties").and_then(Value::as_object) else {
        return refuse(Some(first.clone()));
    };
    if let Some(stray) = inner.wording.iter().find(|name| !properties.contains_key(*name)) {
        return refuse(Some(stray.clone()));
    }
    if properties.keys().all(|name| inner.wording.contains(name)) {
        return refuse(None);
    }
    Ok(())
}

/// Inlined and without `$schema` and `title`: what is left is what providers take and a model needs.
fn schema_for<T: JsonSchema>(output: bool) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let settings = if output { settings.for_serialize() } else { settings };
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Value::Object(members) = &mut schema {
        members.remove("title");
    }
    schema
}
