//! What a model is told about arguments that do not fit: where, which rule, how to mend it, and never a value.

use std::fmt::Write as _;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde::Serialize;
use serde_json::{Value, json};
use tower_tool_core::spec::pointer::escaped;
use tower_tool_core::{ToolError, ToolErrorKind};

/// How many violations are told at once.
const MAX_VIOLATIONS: usize = 8;
/// The longest message to the model, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The longest name or rule that is repeated, in characters.
const MAX_NAME: usize = 80;
/// The longest hint that is repeated, in characters.
const MAX_HINT: usize = 200;
/// How many alternatives are told.
const MAX_ALTERNATIVES: usize = 4;

/// One thing that is wrong.
#[derive(Debug, Serialize)]
struct Violation {
    /// Where: a JSON pointer (RFC 6901) to the value, or to where it is missing.
    pointer: String,
    /// Which rule.
    keyword: String,
    /// What the rule wants.
    expected: String,
    /// The type that was found there. The type of a value is not its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<&'static str>,
    /// What the author says to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Violation {
    fn of_all(keyword: &str, expected: &str) -> Self {
        Self {
            pointer: String::new(),
            keyword: keyword.to_owned(),
            expected: expected.to_owned(),
            got: None,
            hint: None,
        }
    }
}

/// The arguments lead through the schema in more ways than can be checked.
pub(super) fn too_complex() -> ToolError {
    invalid(vec![Violation::of_all("complexity", "fewer, shorter or less nested values")])
}

/// They do not fit, and saying where would cost too much.
pub(super) fn unfit() -> ToolError {
    invalid(vec![Violation::of_all("schema", "arguments that fit the schema")])
}

/// All violations, as many as are told at once.
pub(super) fn violations(validator: &Validator, schema: &Value, arguments: &Value) -> ToolError {
    let all = validator.iter_errors(arguments).flat_map(|error| violations_of(&error, schema));
    invalid(all.take(MAX_VIOLATIONS).collect())
}

/// The first of what may be far too many.
pub(super) fn first_violation(validator: &Validator, schema: &Value, arguments: &Value) -> ToolError {
    let first = validator.validate(arguments).err();
    invalid(first.into_iter().flat_map(|error| violations_of(&error, schema)).take(MAX_VIOLATIONS).collect())
}

fn invalid(violations: Vec<Violation>) -> ToolError {
    let mut message = String::from("The arguments do not fit the tool's schema. Correct them once, then call again.");
    for Violation { pointer, keyword, expected, got, hint } in &violations {
        let pointer = if pointer.is_empty() { "the arguments" } else { pointer };
        let mut line = format!("\n- {pointer}: expected {expected}");
        // Where the type is right, naming it would mislead.
        if let Some(got) = got.filter(|_| matches!(keyword.as_str(), "type" | "anyOf" | "oneOf" | "enum" | "const")) {
            let _ = write!(line, ", got {got}");
        }
        if let Some(hint) = hint {
            let _ = write!(line, " ({hint})");
        }
        if message.len() + line.len() > MAX_MESSAGE {
            break;
        }
        message.push_str(&line);
    }
    ToolError::new(ToolErrorKind::InvalidArguments, "the arguments do not fit the schema")
        .with_detail("errors", json!(violations))
        .with_safe_message(message)
}

/// One violation, or one for each property where the rule is about several.
fn violations_of(error: &ValidationError<'_>, schema: &Value) -> Vec<Violation> {
    let keyword = error.kind().keyword().to_owned();
    let hint = |property: Option<&str>| hint(error, schema, property).map(|hint| cropped(hint, MAX_HINT));
    let at = error.instance_path().as_str();
    let of_member = |name: &str, expected: &str| Violation {
        pointer: format!("{}/{}", shown(at), shown(&escaped(name))),
        keyword: keyword.clone(),
        expected: expected.to_owned(),
        got: None,
        hint: hint(Some(name)),
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            vec![of_member(property.as_str().unwrap_or_default(), "a value here: it is required and missing")]
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => unexpected
            .iter()
            .take(MAX_VIOLATIONS)
            .map(|name| of_member(name, "nothing here: there is no such property, leave it out"))
            .collect(),
        _ => vec![Violation {
            pointer: shown(at),
            keyword,
            expected: expected(error),
            got: Some(kind_of(error.instance())),
            hint: hint(None).or_else(|| is_encoded(error).then(|| "send it itself, not its text".to_owned())),
        }],
    }
}

/// What the author says to do about a violation, in `errorMessage` beside the keyword that was violated: one text for all keywords, or
/// one for each by its name, which may be one for each property by its name.
fn hint<'a>(error: &ValidationError<'_>, schema: &'a Value, property: Option<&str>) -> Option<&'a str> {
    let (beside, keyword) = error.schema_path().as_str().rsplit_once('/')?;
    let told = schema.pointer(beside)?.get("errorMessage")?;
    if let Some(text) = told.as_str() {
        return Some(text);
    }
    let told = told.get(keyword)?;
    told.as_str().or_else(|| told.get(property?)?.as_str())
}

/// Whether an array or an object is wanted, and its text was sent.
fn is_encoded(error: &ValidationError<'_>) -> bool {
    let is_text = |text: &str| text.trim_start().starts_with(['[', '{']);
    error.instance().as_str().is_some_and(is_text) && wants_inside(error)
}

fn wants_inside(error: &ValidationError<'_>) -> bool {
    let has_inside = |kind: JsonType| matches!(kind, JsonType::Array | JsonType::Object);
    match error.kind() {
        ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => has_inside(*kind),
        ValidationErrorKind::Type { kind: TypeKind::Multiple(kinds) } => kinds.iter().any(has_inside),
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context.iter().filter_map(|branch| branch.first()).any(wants_inside)
        }
        _ => false,
    }
}

/// The rule, in words.
fn expected(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::FalseSchema => "nothing here: leave it out".to_owned(),
        ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => name_of(*kind).to_owned(),
        ValidationErrorKind::Type { kind: TypeKind::Multiple(kinds) } => {
            either(kinds.iter().map(|kind| name_of(kind).to_owned()))
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            // Each alternative is told by the first thing that it misses.
            let missed = context.iter().filter_map(|branch| branch.first());
            either(missed.map(|error| match error.instance_path().as_str() {
                at if at == error_path(context) => expected(error),
                at => format!("{} at {}", expected(error), shown(at)),
            }))
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => "what only one of the alternatives takes".to_owned(),
        ValidationErrorKind::Required { property } => {
            format!("an object with `{}`", shown(property.as_str().unwrap_or_default()))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!("an object without `{}`", shown(unexpected.first().map_or("", String::as_str)))
        }
        ValidationErrorKind::Minimum { limit } => format!("a number not less than {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("a number not greater than {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("a number greater than {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("a number less than {limit}"),
        ValidationErrorKind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        ValidationErrorKind::MinLength { limit } => format!("at least {limit} {}", counted(*limit, "character")),
        ValidationErrorKind::MaxLength { limit } => format!("at most {limit} {}", counted(*limit, "character")),
        ValidationErrorKind::MinItems { limit } => format!("at least {limit} {}", counted(*limit, "item")),
        ValidationErrorKind::MaxItems { limit } => format!("at most {limit} {}", counted(*limit, "item")),
        ValidationErrorKind::MinProperties { limit } => format!("at least {limit} members"),
        ValidationErrorKind::MaxProperties { limit } => format!("at most {limit} members"),
        ValidationErrorKind::UniqueItems => "items that differ from each other".to_owned(),
        ValidationErrorKind::Pattern { pattern } => format!("text that matches `{}`", shown(pattern)),
        ValidationErrorKind::Format { format } => format!("text in the format `{}`", shown(format)),
        ValidationErrorKind::Enum { options } => match options.as_array() {
            Some(options) => format!("one of {}", shown(&either(options.iter().map(Value::to_string)))),
            None => format!("one of {}", shown(&options.to_string())),
        },
        ValidationErrorKind::Constant { expected_value } => shown(&expected_value.to_string()),
        kind => format!("what `{}` demands", kind.keyword()),
    }
}

/// Where the alternatives stand: at the shortest of the places that they miss something at.
fn error_path<'a>(context: &'a [Vec<ValidationError<'static>>]) -> &'a str {
    let paths = context.iter().filter_map(|branch| branch.first()).map(|error| error.instance_path().as_str());
    paths.min_by_key(|path| path.len()).unwrap_or_default()
}

fn either(alternatives: impl Iterator<Item = String>) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut more = false;
    for alternative in alternatives {
        if told.len() == MAX_ALTERNATIVES {
            more = true;
            break;
        }
        if !told.contains(&alternative) {
            told.push(alternative);
        }
    }
    format!("{}{}", told.join(" or "), if more { " or another" } else { "" })
}

fn counted(number: u64, noun: &str) -> String {
    if number == 1 { noun.to_owned() } else { format!("{noun}s") }
}

const fn name_of(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Null => "null",
        JsonType::Boolean => "boolean",
        JsonType::Integer => "integer",
        JsonType::Number => "number",
        JsonType::String => "string",
        JsonType::Array => "array",
        JsonType::Object => "object",
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Names come from the caller too: short, and on one line.
fn shown(name: &str) -> String {
    cropped(name, MAX_NAME)
}

fn cropped(text: &str, max: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(max).collect()
}
