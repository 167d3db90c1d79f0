//! A record of every call: the executed, the replayed, the refused, the dropped and the crashed.
//!
//! The layer stands outermost. It opens a record before anything further in sees the call, and closes it exactly once: with the
//! answer, or by a drop guard when the caller goes away. What happened in between it reads from the call's
//! [journal](crate::journal). Placed again directly around the tool, as [`AuditLayer::execution`], it records each execution, which
//! may outlive its caller.
//!
//! | outcome | means |
//! |---|---|
//! | `completed` | the tool ran for this call and answered |
//! | `replayed`, `joined` | the answer is that of another call |
//! | `refused` | a layer, or dispatch, let it not through: `by` and `code` say which and why |
//! | `failed` | the tool failed: `category` and `effect` say how; `in_progress` if it runs still |
//! | `unknown` | it may have been done |
//! | `panicked` | the tool, or a layer around it, panicked |
//! | `cancelled` | the caller went away; an execution that had begun goes on |
//!
//! A [`Trail`] keeps the records: as [`tracing`](Trace) events, as [JSON lines](JsonLines), in [memory](MemoryTrail). If the trail does
//! not take the opening, a tool with effects is refused before it runs, and a read answers with `unaudited` in `meta.degraded`.
//!
//! The service is always ready and drives a clone of the inner service to readiness itself, so that nothing further in is
//! held while the trail is written.
//!
//! ```
//! use serde_json::json;
//! use tower_tool::audit::{AuditLayer, MemoryTrail};
//! use tower_tool::{CallContext, Principal, ToolCall, Toolset};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let trail = MemoryTrail::new();
//! let tools = Toolset::builder().build()?.layer(AuditLayer::new(trail.clone()));
//! let context = CallContext::without_scope(Principal::new("acme", "user_42"));
//! let _ = tools.run(ToolCall::new("nothing", json!({}), context)).await;
//! let records = trail.records();
//! assert_eq!(records.len(), 2);
//! assert_eq!(serde_json::to_value(&records[1])?["outcome"]["status"], "refused");
//! # Ok(())
//! # }
//! ```

mod guard;
mod layer;
mod record;
mod service;
mod trail;

pub use layer::AuditLayer;
pub use record::{AUDIT_RECORD_VERSION, AuditRecord, Event, Outcome, Point, Status};
pub use service::{Audit, ResponseFuture};
pub use trail::{JsonLines, MemoryTrail, Trace, Trail, TrailError};
