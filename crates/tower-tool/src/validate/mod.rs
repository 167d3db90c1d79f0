//! Arguments against the spec's JSON Schema.
//!
//! The schemas are compiled once, when the toolset is built. Validation decides at once: readiness is the inner service's, a
//! refusal comes from the response future, and a dropped future leaves nothing behind.
//!
//! Unknown properties are refused. What passes is brought into one normal form, and that is what everything further in sees:
//! where the schema says integer, an integral `1.0` becomes `1`; an optional property that is `null` without the schema
//! allowing it is as if absent. Nothing is coerced. The layer also makes the [`Intent`] that approval and
//! idempotency work with.
//!
//! A refusal says which pointer broke which rule, and never shows a value. A call of an unknown tool is passed on untouched.
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

mod check;
mod message;
mod normal_form;

use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::journal::Note;
use tower_tool_core::marks::Kind;
use tower_tool_core::{Intent, LayerError, ToolCall, ToolError, ToolErrorKind, ToolOutput};

pub(crate) use check::CompiledCheck;
pub use check::SchemaError;

use crate::gate::{Gate, gated_future, inner_service_accessors};

/// Checks arguments. See the [module docs](self).
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct ValidateLayer {
    _private: (),
}

impl ValidateLayer {
    /// The layer.
    pub const fn new() -> Self {
        Self { _private: () }
    }
}

impl<S> Layer<S> for ValidateLayer {
    type Service = Validate<S>;

    fn layer(&self, inner: S) -> Validate<S> {
        Validate { inner }
    }
}

/// Checks arguments. See the [module docs](self).
#[derive(Clone, Debug)]
pub struct Validate<S> {
    inner: S,
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
    S: Service<ToolCall, Response = ToolOutput>,
    S::Error: LayerError,
{
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.inner.poll_ready(cx).map_err(LayerError::into_tool_error)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        ResponseFuture::new(match validated(call) {
            Ok(call) => Gate::Pass { inner: self.inner.call(call) },
            Err(error) => Gate::refuse(error),
        })
    }
}

fn validated(mut call: ToolCall) -> Result<ToolCall, ToolError> {
    call.enter(Kind::Validate)?;
    let Some(entry) = call.marks().entry() else {
        return Ok(call);
    };
    let checked = entry.check().arguments(call.arguments()).and_then(|arguments| {
        let intent = match call.marks().resumed() {
            // What was approved is what runs: the stored arguments are in normal form already, or the tool has changed.
            Some((_, intent)) if intent.is_of(call.name(), &arguments, &call.context) => Arc::clone(intent),
            Some(_) => {
                return Err(ToolError::new(
                    ToolErrorKind::ApprovalMismatch,
                    "the stored arguments are no longer in the tool's normal form",
                ));
            }
            None => Arc::new(Intent::new(call.name(), &arguments, &call.context)),
        };
        Ok((arguments, intent))
    });
    match checked {
        Ok((arguments, intent)) => {
            call.journal().validated(&intent);
            Ok(call.with_intent(arguments, intent))
        }
        Err(error) => {
            call.journal().note(Note::Refused { by: Kind::Validate, kind: error.kind() });
            Err(error)
        }
    }
}
