//! Functions and services as tools.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::{
    BoxFuture, CallContext, Effect, Invoke, LayerError, Receipt, Tool, ToolCall, ToolError, ToolErrorKind, ToolOutput,
    ToolSpec,
};

/// A tool from a function of its typed arguments and the call's context.
///
/// The spec says what goes in and out, and a function of other types does not compile. Arguments were validated before they
/// are decoded, so decoding cannot fail; if it does all the same, nothing was done.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tower_tool::schemars::{self, JsonSchema};
/// use tower_tool::{CallContext, Risk, ToolSpec, tool_fn};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     left: i32,
///     right: i32,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Sum {
///     sum: i64,
/// }
///
/// let add = tool_fn(
///     ToolSpec::builder("add")
///         .description("Add two numbers.")
///         .risk(Risk::PublicRead)
///         .input::<Add>()
///         .output::<Sum>()
///         .build()?,
///     |args: Add, _cx: CallContext| async move { Ok(Sum { sum: i64::from(args.left) + i64::from(args.right) }) },
/// );
/// # let _ = add;
/// # Ok::<(), tower_tool::SpecError>(())
/// ```
pub fn tool_fn<I, O, F, Fut, R>(spec: ToolSpec<I, O>, function: F) -> Tool
where
    I: DeserializeOwned + Send + 'static,
    O: 'static,
    F: Fn(I, CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: IntoOutput<O> + 'static,
{
    let invoke = move |call: ToolCall| -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let arguments = I::deserialize(&**call.arguments());
        match arguments {
            Ok(arguments) => {
                let answer = function(arguments, call.context);
                Box::pin(async move { answer.await?.into_output() })
            }
            Err(error) => Box::pin(std::future::ready(Err(undecodable(error)))),
        }
    };
    Tool::new(&spec, Function(invoke))
}

/// The schema let through what the type does not take. The message may quote a value, so it stays with the operators.
fn undecodable(error: serde_json::Error) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, "the arguments fit the schema and not the tool's type")
        .with_source(error)
}

struct Function<F>(F);

impl<F> Invoke for Function<F>
where
    F: Fn(ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync + 'static,
{
    fn invoke(&self, call: ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        (self.0)(call)
    }
}

/// What a [`tool_fn`] may return for an output of type `O`: an `O`, or an `O` with a receipt.
#[diagnostic::on_unimplemented(
    message = "the tool's spec says that it gives `{O}`, and the function gives `{Self}`",
    note = "return the type that the spec names with `.output::<T>()`, or `WithReceipt` of it"
)]
pub trait IntoOutput<O> {
    /// The output.
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON. The tool has run by then.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

impl<O: Serialize> IntoOutput<O> for O {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        serde_json::to_value(self).map(ToolOutput::new).map_err(|error| {
            ToolError::internal("the result cannot be written as JSON").done(Effect::Done).with_source(error)
        })
    }
}

/// A result and what to say about its effect.
///
/// ```
/// use tower_tool::{Receipt, WithReceipt};
///
/// let result = WithReceipt::new(7, Receipt::new().with_undo("call `remove_todo` with id 7"));
/// # let _ = result;
/// ```
#[derive(Clone, Debug)]
pub struct WithReceipt<O> {
    output: O,
    receipt: Receipt,
}

impl<O> WithReceipt<O> {
    /// A result with its receipt.
    pub fn new(output: O, receipt: Receipt) -> Self {
        Self { output, receipt }
    }
}

impl<O: Serialize> IntoOutput<O> for WithReceipt<O> {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self.output.into_output()?.with_receipt(self.receipt))
    }
}

/// A tool from any cloneable `tower::Service<ToolCall>`.
///
/// ```
/// use tower::service_fn;
/// use tower_tool::{Risk, ToolCall, ToolError, ToolOutput, ToolSpec, tool_service};
///
/// let echo = tool_service(
///     &ToolSpec::builder("echo").description("Give the arguments back.").risk(Risk::PublicRead).build()?,
///     service_fn(|call: ToolCall| async move { Ok::<_, ToolError>(ToolOutput::new(call.arguments().clone())) }),
/// );
/// # let _ = echo;
/// # Ok::<(), tower_tool::SpecError>(())
/// ```
pub fn tool_service<I, O, S>(spec: &ToolSpec<I, O>, service: S) -> Tool
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + Sync + 'static,
    S::Error: LayerError,
    S::Future: Send,
{
    Tool::new(spec, Stacked(service))
}

struct Stacked<S>(S);

impl<S> Invoke for Stacked<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + Sync + 'static,
    S::Error: LayerError,
    S::Future: Send,
{
    fn invoke(&self, call: ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let service = self.0.clone();
        Box::pin(async move { service.oneshot(call).await.map_err(LayerError::into_tool_error) })
    }
}

/// Layers around a single tool.
pub trait ToolExt {
    /// Puts a layer around this tool alone, inside the stack of the toolset. A tool that is only declared stays as it is.
    #[must_use]
    fn layer<L>(self, layer: L) -> Tool
    where
        L: Layer<ToolService>,
        L::Service: Service<ToolCall, Response = ToolOutput> + Clone + Send + Sync + 'static,
        <L::Service as Service<ToolCall>>::Error: LayerError,
        <L::Service as Service<ToolCall>>::Future: Send;
}

impl ToolExt for Tool {
    fn layer<L>(self, layer: L) -> Tool
    where
        L: Layer<ToolService>,
        L::Service: Service<ToolCall, Response = ToolOutput> + Clone + Send + Sync + 'static,
        <L::Service as Service<ToolCall>>::Error: LayerError,
        <L::Service as Service<ToolCall>>::Future: Send,
    {
        match self.service() {
            Some(service) => {
                let service = layer.layer(ToolService { invoke: Arc::clone(service) });
                tool_service(self.spec(), service)
            }
            None => self,
        }
    }
}

/// A single tool as a service.
#[derive(Clone)]
pub struct ToolService {
    invoke: Arc<dyn Invoke>,
}

impl Service<ToolCall> for ToolService {
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = BoxFuture<'static, Result<ToolOutput, ToolError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        self.invoke.invoke(call)
    }
}

impl fmt::Debug for ToolService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolService").finish_non_exhaustive()
    }
}
