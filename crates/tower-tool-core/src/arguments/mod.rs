//! The boundary: arguments from text, from bytes, or from a value that somebody else parsed.
//!
//! Text is parsed once, here, and everything further in reads that one value. What two readers could read differently is
//! refused: duplicate keys (after unescaping), lone surrogates, bad UTF-8, integers beyond 64 bits, integral floats beyond what a
//! double holds exactly, nesting deeper than [`MAX_DEPTH`], anything after the value. Empty and blank text, and `null`, are
//! the empty object; arguments that were encoded twice are named as such, and nothing is repaired.
//!
//! ```
//! use tower_tool_core::arguments;
//!
//! assert_eq!(arguments::from_text("  ")?, serde_json::json!({}));
//! let error = arguments::from_text(r#"{"qty":1,"\u0071ty":-1}"#).unwrap_err();
//! assert_eq!(error.pointer(), "/qty");
//! # Ok::<(), tower_tool_core::arguments::ArgumentsError>(())
//! ```

mod error;
mod parser;
mod value;

pub use error::{ArgumentsError, Fault};
pub use value::{check, depth_of, dismantle, from_value};

use parser::Parser;
use serde_json::{Map, Value};

/// The deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 64;

/// Parses arguments from text.
///
/// # Errors
///
/// If the text is not one JSON object that every reader reads alike; see the [module docs](self).
pub fn from_text(text: &str) -> Result<Value, ArgumentsError> {
    if text.trim_matches([' ', '\t', '\n', '\r']).is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    match Parser::new(text).parse()? {
        Value::Null => Ok(Value::Object(Map::new())),
        value @ Value::Object(_) => Ok(value),
        Value::String(inner) if is_object(&inner) => Err(ArgumentsError::at_root(Fault::EncodedTwice)),
        other => Err(ArgumentsError::at_root(Fault::NotAnObject(kind_of(&other)))),
    }
}

/// Parses any JSON value from text, as strictly as arguments.
///
/// # Errors
///
/// If the text is not one JSON value that every reader reads alike; see the [module docs](self).
pub fn value_from_text(text: &str) -> Result<Value, ArgumentsError> {
    Parser::new(text).parse()
}

/// Parses arguments from bytes, which must be UTF-8.
///
/// # Errors
///
/// If the bytes are not UTF-8, or as for [`from_text`].
pub fn from_bytes(bytes: &[u8]) -> Result<Value, ArgumentsError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => from_text(text),
        Err(error) => Err(ArgumentsError::new(Fault::NotUtf8, error.valid_up_to(), String::new())),
    }
}

fn is_object(text: &str) -> bool {
    matches!(Parser::new(text).parse(), Ok(Value::Object(_)))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
