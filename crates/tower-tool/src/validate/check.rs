use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use jsonschema::{PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;
use tower_tool_core::marks::Check;
use tower_tool_core::{ToolError, ToolSpec};

use super::message::violations;
use super::normal_form::NormalForm;

/// The deepest nesting of arguments that is looked at.
const MAX_DEPTH: usize = 64;
/// The most memory that one compiled pattern may take, in bytes.
const PATTERN_SIZE: usize = 1 << 20;

/// A schema that cannot be used.
#[derive(Debug)]
pub struct SchemaError {
    tool: String,
    which: &'static str,
    pointer: String,
    reason: String,
}

impl SchemaError {
    /// The tool whose schema it is.
    pub fn tool(&self) -> &str {
        &self.tool
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its {} schema is not usable at `{}`: {}", self.which, self.pointer, self.reason)
    }
}

impl StdError for SchemaError {}

/// A tool's schemas, compiled.
pub(crate) struct CompiledCheck {
    input: Validator,
    output: Option<Validator>,
    normal_form: NormalForm,
}

impl CompiledCheck {
    pub(crate) fn new(spec: &ToolSpec) -> Result<Self, SchemaError> {
        let compile = |which, schema| {
            compile(schema).map_err(|error| SchemaError {
                tool: spec.name().to_owned(),
                which,
                pointer: error.instance_path().to_string(),
                reason: error.masked().to_string(),
            })
        };
        Ok(Self {
            input: compile("input", spec.input_schema())?,
            output: spec.output_schema().map(|schema| compile("output", schema)).transpose()?,
            normal_form: NormalForm::new(spec.input_schema()),
        })
    }
}

fn compile(schema: &Value) -> Result<Validator, jsonschema::ValidationError<'static>> {
    jsonschema::options()
        .should_validate_formats(true)
        // Linear in the text, whatever the pattern: no backtracking.
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_SIZE).dfa_size_limit(PATTERN_SIZE))
        .with_retriever(Nowhere)
        .build(schema)
}

/// A schema may refer to itself, and to nothing else: no file is read and no connection opened on its behalf.
struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn StdError + Send + Sync>> {
        Err(format!("`{uri}` lies outside the schema, and is not fetched").into())
    }
}

impl Check for CompiledCheck {
    fn arguments(&self, arguments: &Arc<Value>) -> Result<Arc<Value>, ToolError> {
        if depth_exceeds(arguments, MAX_DEPTH) {
            return Err(super::message::too_deep(MAX_DEPTH));
        }
        let normal = self.normal_form.of(arguments);
        if self.input.is_valid(&normal) { Ok(normal) } else { Err(violations(&self.input, &normal)) }
    }

    fn output(&self, output: &Value) -> Result<(), ToolError> {
        match &self.output {
            Some(schema) if !schema.is_valid(output) => {
                Err(ToolError::internal("the tool's result does not fit its output schema"))
            }
            _ => Ok(()),
        }
    }
}

/// Iterative: the depth is the caller's choice.
fn depth_exceeds(value: &Value, max: usize) -> bool {
    let mut open = vec![(value, 1)];
    while let Some((value, depth)) = open.pop() {
        let children: &mut dyn Iterator<Item = &Value> = match value {
            Value::Array(items) => &mut items.iter(),
            Value::Object(members) => &mut members.values(),
            _ => continue,
        };
        if depth > max {
            return true;
        }
        open.extend(children.map(|child| (child, depth + 1)));
    }
    false
}
