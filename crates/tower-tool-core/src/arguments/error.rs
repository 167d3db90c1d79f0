use std::fmt;

use serde_json::json;

use super::MAX_DEPTH;
use crate::spec::pointer::escaped;
use crate::{ToolError, ToolErrorKind};

/// What is wrong with arguments before any schema is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text ends in the middle of the value.
    CutOff,
    /// Something stands where it must not.
    Syntax,
    /// Something follows the value.
    Trailing,
    /// An object has the same key twice.
    DuplicateKey,
    /// An escape names half of a surrogate pair.
    LoneSurrogate,
    /// Arrays and objects nest too deep.
    TooDeep,
    /// An integer does not fit 64 bits.
    IntegerRange,
    /// A number is larger than a double can hold, or an integral float larger than it holds exactly.
    NumberRange,
    /// The whole is a string that holds the object.
    EncodedTwice,
    /// The whole is something else than an object.
    NotAnObject(&'static str),
}

/// Arguments that were refused before any schema was looked at.
///
/// It says what and where, and never shows a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentsError {
    fault: Fault,
    offset: usize,
    pointer: String,
}

impl ArgumentsError {
    pub(super) const fn new(fault: Fault, offset: usize, pointer: String) -> Self {
        Self { fault, offset, pointer }
    }

    pub(super) const fn at_root(fault: Fault) -> Self {
        Self::new(fault, 0, String::new())
    }

    /// The same fault, seen from around the member or item `name`.
    pub(super) fn inside(mut self, name: impl fmt::Display) -> Self {
        let name = escaped(&name.to_string());
        self.pointer.insert_str(0, &name);
        self.pointer.insert(0, '/');
        self
    }

    /// What is wrong.
    pub const fn fault(&self) -> Fault {
        self.fault
    }

    /// Where in the text, in bytes.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Where in the value, as a JSON pointer (RFC 6901).
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}

impl fmt::Display for ArgumentsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::NotUtf8 => f.write_str("the text is not UTF-8")?,
            Fault::CutOff => {
                f.write_str("the text ends before the arguments do: it was cut off, so send all of it again")?;
            }
            Fault::Syntax => f.write_str("the text is not JSON")?,
            Fault::Trailing => f.write_str("something follows the arguments: send one JSON object and nothing else")?,
            Fault::DuplicateKey => f.write_str("a key stands twice in one object: send it once")?,
            Fault::LoneSurrogate => f.write_str("an escape names half of a character")?,
            Fault::TooDeep => write!(f, "arrays and objects nest deeper than {MAX_DEPTH} levels")?,
            Fault::IntegerRange => {
                f.write_str("an integer does not fit 64 bits: send it as a string if the schema lets you")?;
            }
            Fault::NumberRange => f.write_str("a number is too large to be kept exactly")?,
            Fault::EncodedTwice => {
                f.write_str("the arguments are a string that holds JSON: send the object itself, not its text")?;
            }
            Fault::NotAnObject(kind) => write!(f, "the arguments are {kind}: send an object")?,
        }
        if self.offset > 0 {
            write!(f, " (at byte {})", self.offset)?;
        }
        Ok(())
    }
}

impl std::error::Error for ArgumentsError {}

impl From<ArgumentsError> for ToolError {
    fn from(error: ArgumentsError) -> Self {
        let text = error.to_string();
        let pointer: String = error.pointer.chars().filter(|character| !character.is_control()).take(200).collect();
        let told = match pointer.as_str() {
            "" => format!("The arguments cannot be read: {text}."),
            pointer => format!("The arguments cannot be read: {text}, in {pointer}."),
        };
        Self::new(ToolErrorKind::InvalidArguments, text.clone())
            .with_detail("errors", json!([{ "pointer": pointer, "keyword": "json", "expected": text }]))
            .with_safe_message(told)
    }
}
