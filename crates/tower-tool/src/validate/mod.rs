//! Arguments against the spec's JSON Schema.
//!
//! The schemas are compiled once, when the toolset is built. Validation decides at once: readiness is the inner service's, a
//! refusal comes from the response future, and a dropped future leaves nothing behind. Arguments so large that checking them would
//! hold up an asynchronous worker are checked on a blocking thread; those that could be checked only with work beyond
//! bounds are refused: because the schema refers to itself in many ways, looks at its parts again, or has patterns whose automata can be
//! in many states at once, and the text is long. What is wrong is told as far as telling it is within bounds.
//!
//! Each schema is judged by the rules of its draft, from 4 to 2020-12; formats are asserted in all of them. A schema is refused when
//! the tool is registered, with the pointer and the reason, if it refers to something outside itself or in a circle, multiplies
//! beyond bounds, or has a pattern that cannot be matched in linear time.
//!
//! Unknown properties are refused, in objects that are made of several parts too. What passes is brought into one normal form, and that is what everything further in sees:
//! where the schema says integer, an integral `1.0` becomes `1`; an optional property that is `null` without the schema
//! allowing it is as if absent. Nothing is coerced. The layer also makes the [`Intent`] that approval and
//! idempotency work with.
//!
//! A refusal says which pointer broke which rule, and never shows a value. A model may correct an invalid call once; the second
//! failure in a row, of the same tool in the same session and run, is final and says so. A call of an unknown tool is passed on untouched.
//!
//! ```
//! use serde_json::json;
//! use tower_tool::validate::ValidateLayer;
//! use tower_tool::{CallContext, Category, Principal, Risk, ToolCall, ToolSpec, Toolset, tool_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = ToolSpec::builder("get_order")
//!     .description("Read an order.")
//!     .risk(Risk::PublicRead)
//!     .input_schema(json!({
//!         "type": "object",
//!         "properties": { "id": { "type": "integer", "minimum": 1 } },
//!         "required": ["id"],
//!     }))
//!     .build()?;
//! let tools = Toolset::builder()
//!     .tool(tool_fn(spec, |args: serde_json::Value, _cx: CallContext| async move { Ok(args) }))
//!     .build()?
//!     .layer(ValidateLayer::new());
//! let context = CallContext::without_scope(Principal::new("acme", "user_42"));
//!
//! let output = tools.run(ToolCall::new("get_order", json!({ "id": 7.0 }), context.clone())).await?;
//! assert_eq!(**output.data(), json!({ "id": 7 }));
//!
//! let error = tools.run(ToolCall::new("get_order", json!({ "id": 0 }), context)).await.unwrap_err();
//! assert_eq!(error.category(), Category::InvalidArguments);
//! assert_eq!(error.details()["errors"][0]["pointer"], "/id");
//! # Ok(())
//! # }
//! ```

mod budget;
mod check;
mod cost;
mod failures;
mod formats;
mod graph;
mod message;
mod normal_form;
mod patterns;

use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::Value;
use tokio::runtime::Handle;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::{Entry, Kind};
use tower_tool_core::{Intent, LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolSpec};

pub(crate) use check::CompiledCheck;
pub use check::SchemaError;
use failures::Failures;

use crate::gate::{Gate, gated_future, inner_service_accessors};

/// Checks arguments. See the [module docs](self).
#[derive(Clone, Debug, Default)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct ValidateLayer {
    failures: Failures,
}

impl ValidateLayer {
    /// The layer.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for ValidateLayer {
    type Service = Validate<S>;

    fn layer(&self, inner: S) -> Validate<S> {
        Validate { inner, failures: self.failures.clone() }
    }
}

/// Checks arguments. See the [module docs](self).
#[derive(Clone, Debug)]
pub struct Validate<S> {
    inner: S,
    failures: Failures,
}

impl<S> Validate<S> {
    inner_service_accessors!();
}

gated_future! {
    /// The response future of [`Validate`].
    ResponseFuture
}

impl<S> Service<ToolCall> for Validate<S>
where
    S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
    S::Error: LayerError + Send,
    S::Future: Send,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(LayerError::into_tool_error)
    }

    fn call(&mut self, mut call: ToolCall) -> Self::Future {
        if let Err(error) = call.enter(Kind::Validate) {
            return ResponseFuture::new(Gate::refuse(error));
        }
        if let Some(error) = cut_off(&call) {
            return ResponseFuture::new(Gate::refuse(error));
        }
        let Some(entry) = call.marks().entry().cloned() else {
            return ResponseFuture::new(Gate::Pass { inner: self.inner.call(call) });
        };
        if entry.check().takes_long(call.arguments()) {
            // The instance that became ready goes with the call; a clone of it may hold no place further in.
            let clone = self.inner.clone();
            let mut ready = std::mem::replace(&mut self.inner, clone);
            let failures = self.failures.clone();
            return ResponseFuture::new(Gate::later(async move {
                let checked = check_arguments(&entry, call.arguments()).await;
                ready.call(settle(call, &entry, checked, &failures)?).await.map_err(LayerError::into_tool_error)
            }));
        }
        let checked = entry.check().arguments(call.arguments());
        ResponseFuture::new(match settle(call, &entry, checked, &self.failures) {
            Ok(call) => Gate::Pass { inner: self.inner.call(call) },
            Err(error) => Gate::refuse(error),
        })
    }
}

/// Checks arguments, on a thread of its own if that takes long.
pub(crate) async fn check_arguments(entry: &Arc<Entry>, arguments: &Arc<Value>) -> Result<Arc<Value>, ToolError> {
    if !entry.check().takes_long(arguments) {
        return entry.check().arguments(arguments);
    }
    let Ok(runtime) = Handle::try_current() else { return entry.check().arguments(arguments) };
    let (entry, arguments) = (Arc::clone(entry), Arc::clone(arguments));
    let checked = runtime.spawn_blocking(move || entry.check().arguments(&arguments)).await;
    checked.unwrap_or_else(|error| Err(ToolError::internal("validation did not end").with_source(error)))
}

/// Puts the normal form and the intent on the call, or notes the refusal.
fn settle(
    call: ToolCall,
    entry: &Entry,
    checked: Result<Arc<Value>, ToolError>,
    failures: &Failures,
) -> Result<ToolCall, ToolError> {
    let checked = match checked {
        Ok(arguments) => {
            failures.passed(&call);
            intent(&call, entry, &arguments).map(|intent| (intent, arguments))
        }
        Err(error) => Err(failures.failed(&call, error)),
    };
    match checked {
        Ok((intent, arguments)) => {
            call.journal().validated(&intent);
            Ok(call.with_intent(arguments, intent))
        }
        Err(error) => {
            call.journal().note(Note::Refused { by: Kind::Validate, kind: error.kind() });
            Err(error)
        }
    }
}

/// Valid arguments of which the end is missing may be another call than the one that was meant.
fn cut_off(call: &ToolCall) -> Option<ToolError> {
    if !call.is_cut_off() || !call.spec().is_some_and(ToolSpec::has_effects) {
        return None;
    }
    call.journal().note(Note::Refused { by: Kind::Validate, kind: ToolErrorKind::InvalidArguments });
    let message = "the model was stopped while it wrote the arguments";
    let told = "The arguments were cut off. Nothing was done. Send all of them again, or fewer at a time.";
    Some(ToolError::new(ToolErrorKind::InvalidArguments, message).with_safe_message(told))
}

fn intent(call: &ToolCall, entry: &Entry, arguments: &Value) -> Result<Arc<Intent>, ToolError> {
    match call.marks().resumed() {
        // What was approved is what runs: the stored arguments are in normal form already, or the tool has changed.
        Some((_, intent)) if intent.is_of(call.name(), arguments, &call.context) => Ok(Arc::clone(intent)),
        Some(_) => Err(ToolError::new(
            ToolErrorKind::ApprovalMismatch,
            "the stored arguments are no longer in the tool's normal form",
        )),
        None => Ok(Arc::new(Intent::of(entry, arguments, &call.context))),
    }
}
