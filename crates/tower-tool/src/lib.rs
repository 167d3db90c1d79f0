//! tower layers for an agent's tool calls.
//!
//! A model can only name a tool and its arguments. These layers decide whether that happens, make it happen once, and record it:
//! each tool is a `tower::Service<ToolCall>`, and validation, rate limit, approval, idempotency and audit are a
//! [`tower_layer::Layer`] each, so that the order in a `ServiceBuilder` is the order of interception and anyone can add a layer with
//! one line.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//! use tower_tool::schemars::{self, JsonSchema};
//! use tower_tool::{
//!     CallContext, Ledger, Principal, Risk, Scope, Stack, ToolCall, ToolSpec, Toolset, tool_fn,
//! };
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct CreateTicket {
//!     /// What the ticket is about, in a few words.
//!     subject: String,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Ticket {
//!     id: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let create_ticket = tool_fn(
//!     ToolSpec::builder("create_ticket")
//!         .description("Create a support ticket. Use when the user reports a problem.")
//!         .risk(Risk::ReversibleWrite)
//!         .input::<CreateTicket>()
//!         .output::<Ticket>()
//!         .build()?,
//!     |args: CreateTicket, _cx: CallContext| async move { Ok(Ticket { id: format!("TK-{}", args.subject.len()) }) },
//! );
//!
//! let ledger = Ledger::memory();
//! let tools = Toolset::builder().tool(create_ticket).build()?.layer(Stack::recommended(&ledger));
//!
//! let cx = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?);
//! let output = tools.run(ToolCall::new("create_ticket", json!({ "subject": "it rains in" }), cx)).await?;
//! assert_eq!(output.data()["id"], "TK-11");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | module | what it does |
//! |---|---|
//! | [`toolset`] | tools by name, and one stack around their dispatch |
//! | [`stack`] | the recommended layers in the recommended order, with the reasons |
//! | [`audit`] | a record of every call |
//! | [`resume`] | coming back with an approval, and waiting for one |
//! | [`rate_limit`] | how often a caller may call |
//! | [`validate`] | arguments against the tool's schema, in one normal form |
//! | [`approval`] | a person decides before something happens |
//! | [`idempotency`] | what has effects runs at most once |
//! | [`envelope`] | one JSON form for every answer |
//! | [`ledger`] | where intents live, and the state machine |
//! | [`redact`] | what must not be seen |
//!
//! # Features
//!
//! - `rate-limit` (default): the rate limit that counts in this process, by the `governor` crate.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod approval;
pub mod audit;
pub mod envelope;
mod gate;
pub mod idempotency;
mod ids;
pub mod ledger;
pub mod memory;
pub mod rate_limit;
pub mod redact;
pub mod resume;
pub mod stack;
mod tool_fn;
pub mod toolset;
pub mod validate;

pub use ledger::{Ledger, LedgerBuilder, Settlement};
pub use stack::Stack;
pub use tool_fn::{IntoOutput, ToolExt, ToolService, WithReceipt, tool_fn, tool_service};
pub use toolset::{BoxToolset, Toolset};
pub use tower_tool_core::*;

/// The README's snippets, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
