use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use serde_json::json;
use tower_tool_core::journal::Journal;
use tower_tool_core::{Category, LayerError, ToolError, ToolErrorKind, ToolOutput, ToolSpec};

use super::registry::Registry;

/// What was called, and what could have been.
pub(super) struct Unknown {
    pub(super) name: Arc<str>,
    pub(super) only: Option<Arc<HashSet<Arc<str>>>>,
}

pub(super) struct Edge {
    pub(super) spec: Option<ToolSpec>,
    pub(super) journal: Arc<Journal>,
    pub(super) registry: Arc<Registry>,
    /// To name close ones, where the name is unknown.
    pub(super) unknown: Option<Unknown>,
}

impl Edge {
    fn see(&self, error: impl LayerError) -> ToolError {
        let error = error.into_tool_error().seen_by(self.spec.as_ref(), &self.journal);
        let error = self.registry.redactor().error(error);
        if error.category() == Category::Internal {
            // The caller is told the correlation id alone, so whoever runs this must find the rest here.
            let call_id = self.journal.call_id();
            tracing::error!(%call_id, tool = self.spec.as_ref().map(ToolSpec::name), "{}", error.message());
        }
        match &self.unknown {
            Some(Unknown { name, only }) if error.kind() == ToolErrorKind::UnknownTool => {
                let close = self.registry.close_to(name, only.as_deref());
                if close.is_empty() {
                    return error;
                }
                let names = close.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                let message = format!("There is no such tool. Tools with a similar name: {names}.");
                error.with_detail("close_names", json!(close)).with_safe_message(message)
            }
            _ => error,
        }
    }
}

pin_project! {
    /// The response future of a [`Toolset`](super::Toolset).
    pub struct ResponseFuture<F> {
        #[pin]
        pub(super) inner: F,
        pub(super) edge: Edge,
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<ToolOutput, E>>,
    E: LayerError,
{
    type Output = Result<ToolOutput, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        Poll::Ready(result.map_err(|error| this.edge.see(error)))
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
