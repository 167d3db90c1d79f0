//! stub
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod approval;
pub mod envelope;
mod gate;
pub mod idempotency;
mod ids;
pub mod ledger;
pub mod memory;
#[cfg(feature = "rate-limit")]
pub mod rate_limit;
pub mod redact;
pub mod resume;
mod tool_fn;
pub mod toolset;
pub mod validate;

pub use ledger::{Ledger, LedgerBuilder};
pub use tool_fn::{IntoOutput, ToolExt, ToolService, WithReceipt, tool_fn, tool_service};
pub use toolset::{BoxToolset, Toolset};
pub use tower_tool_core::schemars;
pub use tower_tool_core::*;
