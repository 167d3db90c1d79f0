//! The types that every part of tower-tool shares.
//!
//! A [`ToolCall`] names a tool, carries its arguments and a [`CallContext`] that trusted code made. A tool answers with a
//! [`ToolOutput`] or a [`ToolError`]. A [`ToolSpec`] says what a tool is called, what it takes and how risky it is.
//! The layers in between speak to each other through the call's [`marks`] and its [`Journal`].
//!
//! Authors of tools, layers and stores depend on this crate; applications use the facade `tower-tool`, which re-exports it.
//!
//! ```
//! use serde_json::json;
//! use tower_tool_core::{CallContext, Principal, Scope, ToolCall};
//!
//! let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?);
//! let call = ToolCall::new("create_ticket", json!({ "subject": "it rains in" }), context);
//! assert_eq!(call.name(), "create_ticket");
//! # Ok::<(), tower_tool_core::NameError>(())
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod arguments;
mod call;
pub mod canonical;
mod clock;
mod context;
mod digest;
pub mod error;
mod grant;
mod id;
mod intent;
pub mod journal;
pub mod marks;
mod output;
mod reconcile;
mod redacted;
mod risk;
pub mod spec;
pub mod store;
mod tool;

pub use schemars;

pub use call::ToolCall;
pub use clock::{Clock, SystemClock, Timestamp};
pub use context::{CallContext, Execution, IdempotencyKey, NameError, Principal, Scope};
pub use digest::Digest;
pub use error::{Category, Effect, LayerError, Retry, ToolError, ToolErrorKind};
pub use grant::{Claim, Grant, Verdict};
pub use id::{ApprovalId, CallId, ExecutionId, IdError};
pub use intent::{FINGERPRINT_VERSION, Intent};
pub use journal::Journal;
pub use output::{Provenance, Receipt, ToolOutput};
pub use reconcile::{Inquiry, ReconcileHook, Reconciled};
pub use redacted::Redacted;
pub use risk::Risk;
pub use spec::{SpecError, ToolSpec};
pub use tool::{BoxFuture, Invoke, Tool};
