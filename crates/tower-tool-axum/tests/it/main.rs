//! The router as its callers see it: a request goes in, a response comes out.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod approvals;
mod auth;
mod calls;
mod decisions;
mod disconnect;
mod events;
mod executions;
mod hosts;
mod mounting;
mod setup;
