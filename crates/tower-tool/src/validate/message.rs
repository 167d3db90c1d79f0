//! What a model is told about arguments that do not fit: pointers and rules, never values.

use std::fmt::Write as _;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Value, json};
use tower_tool_core::{ToolError, ToolErrorKind};

/// How many violations are told at once.
const MAX_ERRORS: usize = 8;
/// The longest message to the model, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The longest name or rule that is repeated, in characters.
const MAX_NAME: usize = 80;
/// The longest hint that is repeated, in characters.
const MAX_HINT: usize = 200;

/// The arguments lead through the schema in more ways than can be checked.
pub(super) fn too_complex() -> ToolError {
    invalid(vec![json!({ "pointer": "", "keyword": "complexity", "expected": "smaller or less nested arguments" })])
}

/// They do not fit, and saying where would cost too much.
pub(super) fn unfit() -> ToolError {
    invalid(vec![json!({ "pointer": "", "keyword": "schema", "expected": "arguments that fit the schema" })])
}

pub(super) fn violations(validator: &Validator, schema: &Value, arguments: &Value) -> ToolError {
    invalid(validator.iter_errors(arguments).take(MAX_ERRORS).map(|error| violation(&error, schema)).collect())
}

fn invalid(errors: Vec<Value>) -> ToolError {
    let mut message = String::from("The arguments do not fit the tool's schema. Correct them once, then call again.");
    for error in &errors {
        let pointer = match error.get("pointer").and_then(Value::as_str) {
            Some("") | None => "the arguments",
            Some(pointer) => pointer,
        };
        let expected = error.get("expected").and_then(Value::as_str).unwrap_or_default();
        let mut line = format!("\n- {pointer}: expected {expected}");
        if let Some(got) = error.get("got").and_then(Value::as_str) {
            let _ = write!(line, ", got {got}");
        }
        if let Some(hint) = error.get("hint").and_then(Value::as_str) {
            let _ = write!(line, " ({hint})");
        }
        if message.len() + line.len() > MAX_MESSAGE {
            break;
        }
        message.push_str(&line);
    }
    ToolError::new(ToolErrorKind::InvalidArguments, "the arguments do not fit the schema")
        .with_detail("errors", errors)
        .with_safe_message(message)
}

fn violation(error: &ValidationError<'_>, schema: &Value) -> Value {
    let keyword = error.kind().keyword();
    let mut told = json!({
        "pointer": shown(error.instance_path().as_str()),
        "keyword": keyword,
        "expected": expected(error),
    });
    // The type of a value is not its value. For a property that is missing or too much, the type of the object says nothing.
    let about_members = matches!(
        error.kind(),
        ValidationErrorKind::Required { .. }
            | ValidationErrorKind::AdditionalProperties { .. }
            | ValidationErrorKind::UnevaluatedProperties { .. }
    );
    if let Some(members) = told.as_object_mut() {
        if !about_members {
            members.insert("got".to_owned(), json!(kind_of(error.instance())));
        }
        if let Some(hint) = hint(error, schema) {
            members.insert("hint".to_owned(), json!(cropped(hint, MAX_HINT)));
        }
    }
    told
}

/// What the author says to do about a violation, in `errorMessage` beside the keyword that was violated: one text for all keywords, or
/// one for each by its name, and for `required` one for each property by its name.
fn hint<'a>(error: &ValidationError<'_>, schema: &'a Value) -> Option<&'a str> {
    let (beside, keyword) = error.schema_path().as_str().rsplit_once('/')?;
    let told = schema.pointer(beside)?.get("errorMessage")?;
    if let Some(text) = told.as_str() {
        return Some(text);
    }
    let told = told.get(keyword)?;
    match (told, error.kind()) {
        (Value::String(text), _) => Some(text),
        (by_property, ValidationErrorKind::Required { property }) => by_property.get(property.as_str()?)?.as_str(),
        _ => None,
    }
}

/// The rule, in words.
fn expected(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().map(shown).unwrap_or_default();
            format!("the property `{name}`, which is missing")
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names = unexpected.iter().take(3).map(|name| format!("`{}`", shown(name))).collect::<Vec<_>>();
            format!("no property {}", names.join(", "))
        }
        ValidationErrorKind::FalseSchema => "nothing here: leave it out".to_owned(),
        ValidationErrorKind::Type { kind } => format!("{kind:?}")
            .trim_start_matches("Single(")
            .trim_start_matches("Multiple(")
            .trim_end_matches(')')
            .to_lowercase(),
        ValidationErrorKind::Minimum { limit } => format!("a number not less than {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("a number not greater than {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("a number greater than {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("a number less than {limit}"),
        ValidationErrorKind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        ValidationErrorKind::MinLength { limit } => format!("at least {limit} characters"),
        ValidationErrorKind::MaxLength { limit } => format!("at most {limit} characters"),
        ValidationErrorKind::MinItems { limit } => format!("at least {limit} items"),
        ValidationErrorKind::MaxItems { limit } => format!("at most {limit} items"),
        ValidationErrorKind::MinProperties { limit } => format!("at least {limit} properties"),
        ValidationErrorKind::MaxProperties { limit } => format!("at most {limit} properties"),
        ValidationErrorKind::UniqueItems => "items that differ from each other".to_owned(),
        ValidationErrorKind::Pattern { pattern } => {
            format!("text that matches `{}`", shown(pattern))
        }
        ValidationErrorKind::Format { format } => format!("text in the format `{}`", shown(format)),
        ValidationErrorKind::Enum { options } => format!("one of {}", shown(&options.to_string())),
        ValidationErrorKind::Constant { expected_value } => shown(&expected_value.to_string()),
        kind => format!("what `{}` demands", kind.keyword()),
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
