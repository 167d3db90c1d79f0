use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::{ToolCall, ToolError, ToolOutput, ToolSpec};

/// A boxed future that can move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What runs a tool. The one box on the way of a call is made here.
///
/// Any cloneable `tower::Service<ToolCall>` becomes one by the facade's `tool_service`; implement it only to save that
/// service's clone.
pub trait Invoke: Send + Sync + 'static {
    /// Begins a call. What has effects must have them in the future, not here.
    fn invoke(&self, call: ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>>;
}

/// A tool: its spec and the service that runs it, or the spec alone where the client executes it.
#[derive(Clone)]
pub struct Tool {
    spec: ToolSpec,
    service: Option<Arc<dyn Invoke>>,
}

impl Tool {
    /// A tool that `service` runs.
    pub fn new<I, O>(spec: &ToolSpec<I, O>, service: impl Invoke) -> Self {
        Self { spec: spec.erase(), service: Some(Arc::new(service)) }
    }

    /// A tool that the model sees and the client executes.
    pub fn declared<I, O>(spec: &ToolSpec<I, O>) -> Self {
        Self { spec: spec.erase(), service: None }
    }

    /// The spec.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The service, unless the client executes this tool.
    pub fn service(&self) -> Option<&Arc<dyn Invoke>> {
        self.service.as_ref()
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, service } = self;
        f.debug_struct("Tool").field("spec", spec).field("declared_only", &service.is_none()).finish()
    }
}
