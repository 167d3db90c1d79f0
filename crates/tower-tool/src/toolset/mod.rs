//! Tools by name, and one stack around their dispatch.
//!
//! A [`Toolset`] is itself a `Service<ToolCall>`: it looks the name up, puts what it knows of the tool on the call, and hands the
//! call to its stack, whose innermost service, [`Dispatch`], runs the tool. There is one stack for all tools, so that
//! `concurrency_limit(1)` around five tools lets one run and not five.
//!
//! A [selection](Toolset::select) is the same stack over fewer names: what one worker of an agent holds. Tools can be switched
//! [off](Toolset::disable), [on](Toolset::enable) and [replaced](Toolset::replace) while calls run; every clone and selection sees
//! that at its next call, and a running call keeps the tool it was given.
//!
//! Readiness is that of the stack; dispatch is always ready.
//!
//! ```
//! use serde_json::json;
//! use tower_tool::{CallContext, Principal, Risk, Scope, ToolCall, ToolSpec, Toolset, tool_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ping = tool_fn(
//!     ToolSpec::builder("ping").description("Answer.").risk(Risk::PublicRead).build()?,
//!     |_args: serde_json::Value, _cx: CallContext| async { Ok(json!("pong")) },
//! );
//! let tools = Toolset::builder().tool(ping).build()?;
//! let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?);
//! let output = tools.run(ToolCall::new("ping", json!({}), context)).await?;
//! assert_eq!(**output.data(), json!("pong"));
//! # Ok(())
//! # }
//! ```

mod builder;
mod dispatch;
mod future;
mod registry;

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::marks::Marks;
use tower_tool_core::spec::Definition;
use tower_tool_core::{Effect, LayerError, Tool, ToolCall, ToolError, ToolOutput, ToolSpec};

pub use builder::{BuildError, ToolsetBuilder};
pub use dispatch::{Dispatch, DispatchFuture};
pub use future::ResponseFuture;

use future::{Edge, Unknown};
use registry::Registry;

/// A toolset whose stack has no type to write down.
pub type BoxToolset = Toolset<BoxCloneSyncService<ToolCall, ToolOutput, ToolError>>;

/// Tools by name, and one stack around their dispatch. See the [module docs](self).
#[derive(Clone, Debug)]
pub struct Toolset<S = Dispatch> {
    registry: Arc<Registry>,
    only: Option<Arc<HashSet<Arc<str>>>>,
    service: S,
}

impl Toolset {
    /// Begins a toolset.
    pub fn builder() -> ToolsetBuilder {
        ToolsetBuilder::default()
    }
}

impl<S> Toolset<S> {
    /// Puts a layer, or a whole `ServiceBuilder`, around the stack so far.
    #[must_use]
    pub fn layer<L: Layer<S>>(self, layer: L) -> Toolset<L::Service> {
        Toolset { registry: self.registry, only: self.only, service: layer.layer(self.service) }
    }

    /// The same stack over these names only, in the order of registration.
    ///
    /// # Errors
    ///
    /// If this toolset does not hold one of the names.
    pub fn select<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Self, BuildError>
    where
        S: Clone,
    {
        let mut only = HashSet::new();
        for name in names {
            let name = name.as_ref();
            if !self.registry.contains(name) || !self.may_call(name) {
                return Err(BuildError::unknown(name));
            }
            only.insert(Arc::from(name));
        }
        Ok(Self { registry: Arc::clone(&self.registry), only: Some(Arc::new(only)), service: self.service.clone() })
    }

    fn may_call(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(name))
    }

    /// What a model may see, in the order of registration. No layer changes it.
    pub fn definitions(&self) -> Vec<Definition> {
        self.registry.definitions(self.only.as_deref())
    }

    /// The names that can be called, in the order of registration.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.registry.names(self.only.as_deref())
    }

    /// The spec of a tool that can be called.
    pub fn spec(&self, name: &str) -> Option<ToolSpec> {
        self.registry.spec(name).filter(|_| self.may_call(name))
    }

    /// Switches a tool off, for every clone and selection. `false` if this toolset holds none of this name.
    pub fn disable(&self, name: &str) -> bool {
        self.may_call(name) && self.registry.set_enabled(name, false)
    }

    /// Switches a tool on again. `false` if this toolset holds none of this name.
    pub fn enable(&self, name: &str) -> bool {
        self.may_call(name) && self.registry.set_enabled(name, true)
    }

    /// Puts another tool in the place of the one with its name, for every clone and selection.
    ///
    /// # Errors
    ///
    /// If this toolset holds none of this name, or the tool's schemas cannot be used. The old tool then stays.
    pub fn replace(&self, tool: &Tool) -> Result<(), BuildError> {
        let name = tool.spec().name();
        if self.may_call(name) { self.registry.replace(tool) } else { Err(BuildError::unknown(name)) }
    }
}

impl<S> Toolset<S>
where
    S: Service<ToolCall, Response = ToolOutput>,
    S::Error: LayerError,
{
    /// Runs one call: waits until a clone of the stack is ready, and calls it.
    ///
    /// # Errors
    ///
    /// Whatever a layer or the tool refuses or fails with.
    pub async fn run(&self, call: ToolCall) -> Result<ToolOutput, ToolError>
    where
        S: Clone,
    {
        self.clone().oneshot(call).await
    }

    /// The same toolset, with a type that can be written down.
    pub fn boxed(self) -> BoxToolset
    where
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        Toolset {
            registry: self.registry,
            only: self.only,
            service: BoxCloneSyncService::new(self.service.map_err(LayerError::into_tool_error)),
        }
    }
}

impl<S> Service<ToolCall> for Toolset<S>
where
    S: Service<ToolCall, Response = ToolOutput>,
    S::Error: LayerError,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        // No call has been made, so whatever failed, nothing was done.
        let see = |error: S::Error| self.registry.redactor().error(error.into_tool_error().done(Effect::NotDone));
        self.service.poll_ready(cx).map_err(see)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        let from_inside = call.marks().is_looked_up();
        // What trusted code outside demanded stays demanded.
        let demanded = !from_inside && call.marks().is_demanded();
        if from_inside {
            // It comes from inside another toolset, where it is a call of its own kind.
            call = call.with_new_journal();
        }
        call.journal().begin_anew();
        let entry = self.may_call(call.name()).then(|| self.registry.enabled(call.name())).flatten();
        let spec = entry.as_ref().map(|entry| entry.spec().clone());
        let unknown = entry.is_none().then(|| Unknown { name: call.shared_name(), only: self.only.clone() });
        let (journal, registry) = (Arc::clone(call.journal()), Arc::clone(&self.registry));
        let edge = Edge { spec, journal, registry, unknown };
        // Whatever was on the call before is not this toolset's: the marks begin anew.
        *call.marks_mut() = Marks::looked_up(entry);
        if demanded {
            call.marks_mut().demand();
        }
        ResponseFuture { inner: self.service.call(call), edge }
    }
}
