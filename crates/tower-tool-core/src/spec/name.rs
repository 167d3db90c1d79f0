use std::fmt;

/// A name that no provider would take for a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolNameError {
    name: String,
}

impl fmt::Display for ToolNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a tool cannot be named `{}`: use 1 to 64 of A-Z, a-z, 0-9, `_` and `-`", self.name.escape_debug())
    }
}

impl std::error::Error for ToolNameError {}

/// Checks a tool's name: 1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`, which every provider takes.
///
/// # Errors
///
/// If the name is none of that.
pub fn check_name(name: &str) -> Result<(), ToolNameError> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if fits { Ok(()) } else { Err(ToolNameError { name: name.chars().take(80).collect() }) }
}

/// A name as a reader would confuse it with others: lower case, and `-` for `_`. Two tools of one toolset may not share it.
pub fn folded_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}
