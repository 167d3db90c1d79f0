//! A person decides before something happens.
//!
//! The layer decides at once: a call that needs no approval passes, one that was approved gets its [`Grant`](crate::Grant), and
//! every other is refused with `APPROVAL_REQUIRED` and the id of a card that a person can decide. It does not wait; waiting, and
//! coming back, is the business of [`resume`](crate::resume).
//!
//! A call needs approval if its spec demands it (risk R3 and R4 always do), if a layer further out has, or if this layer's
//! own rule says so ([`tools`](ApprovalLayer::tools), [`when`](ApprovalLayer::when)).
//!
//! Before it asks, the layer looks the intent up in the ledger. What was executed, or is being, goes on to
//! [`idempotency`](crate::idempotency), which has the answer. An equal call joins the card that is open. A denied or expired
//! card does not stand in the way of a new request, which opens a new one; coming back *with* the id of a closed card is refused.
//!
//! The service is always ready and drives a clone of the inner service to readiness itself, so that nothing further in is held while
//! the ledger is asked. A dropped call has at most opened a card.
//!
//! ```
//! use serde_json::json;
//! use tower_tool::approval::ApprovalLayer;
//! use tower_tool::idempotency::IdempotencyLayer;
//! use tower_tool::store::{Decision, Desk, Door};
//! use tower_tool::validate::ValidateLayer;
//! use tower_tool::{CallContext, Ledger, Principal, Risk, Scope, ToolCall, ToolErrorKind, ToolSpec, Toolset, tool_fn};
//! use tower::ServiceBuilder;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = ToolSpec::builder("refund").description("Pay money back.").risk(Risk::Critical).build()?;
//! let ledger = Ledger::memory();
//! let tools = Toolset::builder()
//!     .tool(tool_fn(spec, |_args: serde_json::Value, _cx: CallContext| async { Ok(json!("paid")) }))
//!     .build()?
//!     .layer(
//!         ServiceBuilder::new()
//!             .layer(ValidateLayer::new())
//!             .layer(ApprovalLayer::new(&ledger))
//!             .layer(IdempotencyLayer::new(&ledger)),
//!     );
//! let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?);
//! let refund = || ToolCall::new("refund", json!({}), context.clone());
//! let error = tools.run(refund()).await.unwrap_err();
//! assert_eq!(error.kind(), ToolErrorKind::ApprovalRequired);
//!
//! // A person, at some door, sees the card and says yes to exactly these arguments.
//! let cards = ledger.pending("acme").await?;
//! let card = &cards[0];
//! let decision = Decision::new(true, "bob", Door::new("terminal"), card.executed.hash, ledger.now());
//! ledger.decide("acme", card.id, decision).await?;
//!
//! let output = tools.run(refund()).await?;
//! assert_eq!(**output.data(), json!("paid"));
//! # Ok(())
//! # }
//! ```

mod layer;
mod service;
mod ticket;

pub use layer::{ApprovalLayer, ApprovalRule};
pub use service::{Approval, ResponseFuture};
pub use ticket::ticket;

pub(crate) use service::key_reused;
