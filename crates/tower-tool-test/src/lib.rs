#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![expect(clippy::panic, reason = "a test kit reports by panicking")]

mod answer;
pub mod approver;
pub mod call;
mod clock;
pub mod contract;
pub mod probe;
pub mod record;
pub mod store;
pub mod tool;
mod watched;

pub use answer::Answer;
pub use approver::{Reply, ScriptedApprover};
pub use clock::FakeClock;
pub use contract::LayerContract;
pub use probe::{Probe, ProbeHandle};
pub use tool::MockTool;
