use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use jsonschema::{PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;
use tower_tool_core::marks::Check;
use tower_tool_core::{ToolError, ToolSpec, arguments};

use super::budget::{self, MAX_WORK, Telling};
use super::cost::Size;
use super::formats;
use super::graph::{Graph, Refusal};
use super::message::{first_violation, too_complex, unfit, violations};
use super::normal_form::NormalForm;
use super::patterns::{PATTERN_SIZE, TABLE_SIZE};

/// So many values, or as much text, are read leniently on an asynchronous worker.
const MAX_TEXT_INLINE: u64 = 256;

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
    spec: ToolSpec,
    input: Schema,
    output: Option<Schema>,
    normal_form: NormalForm,
}

struct Schema {
    validator: Validator,
    graph: Graph,
}

impl CompiledCheck {
    pub(crate) fn new(spec: &ToolSpec) -> Result<Self, SchemaError> {
        let schema = |which, schema| {
            Schema::new(schema).map_err(|Refusal { pointer, reason }| SchemaError {
                tool: spec.name().to_owned(),
                which,
                pointer,
                reason,
            })
        };
        Ok(Self {
            spec: spec.clone(),
            input: schema("input", spec.input_schema())?,
            output: spec.output_schema().map(|output| schema("output", output)).transpose()?,
            normal_form: NormalForm::new(spec.input_schema(), spec.reading()),
        })
    }
}

impl Schema {
    fn new(schema: &Value) -> Result<Self, Refusal> {
        // First what could make the compiler itself go round in circles.
        let graph = Graph::new(schema)?;
        let validator = compile(schema).map_err(|error| Refusal {
            pointer: error.instance_path().to_string(),
            reason: error.masked().to_string(),
        })?;
        Ok(Self { validator, graph })
    }
}

fn compile(schema: &Value) -> Result<Validator, jsonschema::ValidationError<'static>> {
    // Linear in the text, whatever the pattern: no backtracking.
    let patterns = PatternOptions::regex().size_limit(PATTERN_SIZE).dfa_size_limit(TABLE_SIZE);
    let options = jsonschema::options().with_pattern_options(patterns).with_retriever(Nowhere);
    formats::asserted(options, schema).build(schema)
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
        arguments::check(arguments)?;
        let normal = self.normal_form.of(arguments);
        let Schema { validator, graph } = &self.input;
        if budget::work(graph, &normal) > MAX_WORK {
            return Err(too_complex());
        }
        if validator.is_valid(&normal) {
            return Ok(normal);
        }
        let schema = self.spec.input_schema();
        Err(match budget::telling(graph, &normal) {
            Telling::All => violations(validator, schema, &normal),
            Telling::First => first_violation(validator, schema, &normal),
            Telling::Nothing => unfit(),
        })
    }

    fn takes_long(&self, arguments: &Value) -> bool {
        // Text that is read leniently may hold many values.
        let reads_text = self.spec.reading().lenient && Size::of(arguments).total() > MAX_TEXT_INLINE;
        arguments::check(arguments).is_ok() && (reads_text || budget::may_take_long(&self.input.graph, arguments))
    }

    fn output(&self, output: &Value) -> Result<(), ToolError> {
        let Some(Schema { validator, graph }) = &self.output else { return Ok(()) };
        if arguments::depth_of(output) > arguments::MAX_DEPTH || budget::work(graph, output) > MAX_WORK {
            return Err(ToolError::internal("the tool's result is too complex to check against its output schema"));
        }
        if validator.is_valid(output) {
            return Ok(());
        }
        Err(ToolError::internal("the tool's result does not fit its output schema"))
    }
}
