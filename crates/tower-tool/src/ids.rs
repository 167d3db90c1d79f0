//! Random identifiers, or an error that refuses the call.

use std::fmt::Write as _;
use std::sync::Arc;

use tower_tool_core::{ApprovalId, ExecutionId, ToolError, ToolErrorKind};

fn no_random_source(error: getrandom::Error) -> ToolError {
    ToolError::new(ToolErrorKind::Unavailable, "the operating system gives no random numbers").with_source(error)
}

pub(crate) fn approval() -> Result<ApprovalId, ToolError> {
    ApprovalId::random().map_err(no_random_source)
}

pub(crate) fn execution() -> Result<ExecutionId, ToolError> {
    ExecutionId::random().map_err(no_random_source)
}

/// What a tool passes on to its provider, for all attempts of one intent.
pub(crate) fn provider_key() -> Result<Arc<str>, ToolError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(no_random_source)?;
    let mut key = String::with_capacity(32);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(key, "{byte:02x}");
    }
    Ok(key.into())
}
