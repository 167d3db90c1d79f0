use std::convert::Infallible;
use std::error::Error as StdError;

use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

use super::{ToolError, ToolErrorKind};

/// Any error, as tower's own layers give it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// An error that may stand inside our layers: every layer accepts it from its inner service and gives a [`ToolError`].
///
/// Implemented for [`ToolError`], [`BoxError`] and [`Infallible`]. Implement it for the error of a layer of your own:
///
/// ```
/// use tower_tool_core::{LayerError, ToolError, ToolErrorKind};
///
/// struct CircuitOpen;
///
/// impl LayerError for CircuitOpen {
///     fn into_tool_error(self) -> ToolError {
///         ToolError::new(ToolErrorKind::Unavailable, "the circuit is open")
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand inside a tower-tool layer",
    note = "implement `LayerError` for it, or map it with `tower::ServiceExt::map_err`"
)]
pub trait LayerError {
    /// Says what the error means for the call.
    fn into_tool_error(self) -> ToolError;
}

impl LayerError for ToolError {
    fn into_tool_error(self) -> ToolError {
        self
    }
}

impl LayerError for Infallible {
    fn into_tool_error(self) -> ToolError {
        match self {}
    }
}

impl LayerError for BoxError {
    fn into_tool_error(self) -> ToolError {
        peel(self).unwrap_or_else(|error| {
            ToolError::unclassified(ToolErrorKind::ToolFailed, "a layer around the tool failed", error)
        })
    }
}

/// Finds the error that tower's layers boxed: ours, or one of tower's that we know.
pub(super) fn peel(error: BoxError) -> Result<ToolError, BoxError> {
    let error = match error.downcast::<ToolError>() {
        Ok(error) => return Ok(*error),
        Err(error) => error,
    };
    if error.is::<Elapsed>() {
        return Ok(ToolError::unclassified(ToolErrorKind::Timeout, "a time limit around the tool ran out", error));
    }
    if error.is::<Overloaded>() {
        let message = "a load limit around the tool is reached";
        return Ok(ToolError::new(ToolErrorKind::Overloaded, message).with_source(error));
    }
    // A buffer wraps the error that closed it; what it wraps may be ours.
    in_chain(&*error).ok_or(error)
}

fn in_chain(error: &(dyn StdError + 'static)) -> Option<ToolError> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<ToolError>() {
            return Some(found.clone());
        }
        next = error.source();
    }
    None
}
