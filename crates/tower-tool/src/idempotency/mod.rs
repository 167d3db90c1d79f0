//! A tool with effects runs at most once per intent and window; the answer is the first result, or the truth about why there is none.
//!
//! A call with effects is claimed in the ledger before it runs, and its result is recorded before the caller has it. It runs in a
//! task of its own, with none of the caller's cancellation: a caller that is dropped decides nothing, and whoever repeats the
//! call gets the result. Reads run inline, die with their caller, and are never stored.
//!
//! | the ledger knows | the call gets |
//! |---|---|
//! | nothing, or that an earlier run did nothing | its own execution |
//! | that it runs, in this process | the same answer, when it comes |
//! | that it runs elsewhere | the result when the ledger has it, or `IN_PROGRESS` |
//! | the result | the result, marked as replayed; without its data, `REPLAY_BODY_UNAVAILABLE` |
//! | the result of another wording | `DUPLICATE_INTENT` with the first receipt, or the result, as the tool's author chose |
//! | that it was done and then failed | that error again |
//! | that it may have been done | `UNKNOWN_OUTCOME`; nothing runs until that is settled |
//! | other arguments under the same key | `KEY_REUSED` |
//!
//! A failure that did nothing frees the intent, and reaches everyone who waited for it. What may have been done stays unknown. Once
//! the tool was reached and did not cleanly fail itself, no layer around it can say that nothing was done.
//!
//! A tool that calls itself with the same intent, also by way of other tools in the same task, is refused with `REENTRANT_CALL`: it
//! would wait for itself. Where tasks were spawned in between, or two tools wait for each other, the wait ends after 30 seconds with
//! `IN_PROGRESS`.
//!
//! When the caller's deadline passes, it gets `IN_PROGRESS` and the id of the execution; the execution goes on.
//!
//! The service is always ready and drives a clone of the inner service to readiness itself, so that a replay needs no free place
//! further in. It must be called within a tokio runtime.
//!
//! ```
//! use serde_json::json;
//! use tower::ServiceBuilder;
//! use tower_tool::idempotency::IdempotencyLayer;
//! use tower_tool::validate::ValidateLayer;
//! use tower_tool::{
//!     CallContext, Ledger, Principal, Provenance, Risk, Scope, ToolCall, ToolSpec, Toolset, tool_fn,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = ToolSpec::builder("ring").description("Ring the bell.").risk(Risk::ReversibleWrite).build()?;
//! let ledger = Ledger::memory();
//! let tools = Toolset::builder()
//!     .tool(tool_fn(spec, |_args: serde_json::Value, _cx: CallContext| async { Ok(json!("ding")) }))
//!     .build()?
//!     .layer(ServiceBuilder::new().layer(ValidateLayer::new()).layer(IdempotencyLayer::new(&ledger)));
//! let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?);
//! let first = tools.run(ToolCall::new("ring", json!({}), context.clone())).await?;
//! let again = tools.run(ToolCall::new("ring", json!({}), context)).await?;
//! assert_eq!(first.provenance(), Provenance::Fresh);
//! assert_eq!(again.provenance(), Provenance::Replayed);
//! # Ok(())
//! # }
//! ```

mod execute;
mod layer;
mod search;
mod service;

pub use layer::IdempotencyLayer;
pub use service::{Idempotency, ResponseFuture};
