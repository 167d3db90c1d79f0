use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{Inner, ToolNameError, ToolSpec, check_name, schema};
use crate::{Digest, Risk};

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
    name: String,
    description: String,
    version: String,
    risk: Risk,
    demands_approval: bool,
    safe_to_repeat: bool,
    input_schema: Value,
    output_schema: Option<Value>,
    types: PhantomData<fn(I) -> O>,
}

impl SpecBuilder {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            description: String::new(),
            version: "1".to_owned(),
            risk: Risk::default(),
            demands_approval: false,
            safe_to_repeat: false,
            input_schema: json!({ "type": "object", "properties": {} }),
            output_schema: None,
            types: PhantomData,
        }
    }
}

impl<I, O> SpecBuilder<I, O> {
    /// What the model reads: what the tool does, when to use it and when not to.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// The author's version of the tool, `1` unless set.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// How much harm a call can do, [`Risk::HighImpact`] unless set.
    pub fn risk(mut self, risk: Risk) -> Self {
        self.risk = risk;
        self
    }

    /// Every call needs a grant, whatever the risk.
    pub fn demand_approval(mut self) -> Self {
        self.demands_approval = true;
        self
    }

    /// Running twice is as good as running once, although the tool has effects. Only say so of a tool that itself recognises
    /// what it has done already.
    pub fn safe_to_repeat(mut self) -> Self {
        self.safe_to_repeat = true;
        self
    }

    /// Takes the arguments as a `T`, whose doc comments become what the model reads.
    pub fn input<T: JsonSchema>(self) -> SpecBuilder<T, O> {
        self.retype(|builder| builder.input_schema = schema_for::<T>(false))
    }

    /// Gives the result as a `T`.
    pub fn output<T: JsonSchema>(self) -> SpecBuilder<I, T> {
        self.retype(|builder| builder.output_schema = Some(schema_for::<T>(true)))
    }

    /// Takes the arguments as a `Value` that fits this JSON Schema.
    pub fn input_schema(self, schema: Value) -> SpecBuilder<Value, O> {
        self.retype(|builder| builder.input_schema = schema)
    }

    /// Gives the result as a `Value` that fits this JSON Schema.
    pub fn output_schema(self, schema: Value) -> SpecBuilder<I, Value> {
        self.retype(|builder| builder.output_schema = Some(schema))
    }

    fn retype<I2, O2>(self, change: impl FnOnce(&mut SpecBuilder<I2, O2>)) -> SpecBuilder<I2, O2> {
        let Self {
            name,
            description,
            version,
            risk,
            demands_approval,
            safe_to_repeat,
            input_schema,
            output_schema,
            types: _,
        } = self;
        let mut builder = SpecBuilder {
            name,
            description,
            version,
            risk,
            demands_approval,
            safe_to_repeat,
            input_schema,
            output_schema,
            types: PhantomData,
        };
        change(&mut builder);
        builder
    }

    /// Builds the spec.
    ///
    /// # Errors
    ///
    /// If the name is not one, the description is missing, or the input schema does not describe an object.
    pub fn build(self) -> Result<ToolSpec<I, O>, SpecError> {
        let Self {
            name,
            description,
            version,
            risk,
            demands_approval,
            safe_to_repeat,
            mut input_schema,
            output_schema,
            types: _,
        } = self;
        check_name(&name).map_err(SpecError::Name)?;
        if description.trim().is_empty() {
            return Err(SpecError::NoDescription { tool: name });
        }
        if input_schema.get("type").is_none_or(|kind| kind != "object") {
            return Err(SpecError::InputNotAnObject { tool: name });
        }
        schema::close(&mut input_schema);
        schema::bound_integers(&mut input_schema);
        let mut inner = Inner {
            name: name.into(),
            description,
            version,
            risk,
            demands_approval,
            safe_to_repeat,
            input_schema,
            output_schema,
            definition: Digest::from_bytes([0; 32]),
        };
        inner.definition = inner.digest();
        Ok(ToolSpec { inner: Arc::new(inner), types: PhantomData })
    }
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
