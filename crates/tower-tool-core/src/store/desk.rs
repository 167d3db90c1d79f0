use std::fmt;

use super::{Approval, Decision};
use crate::{ApprovalId, BoxFuture, Timestamp, ToolError};

/// Where cards are read and decided. The facade's `Ledger` is one; doors and scripted approvers work on any.
pub trait Desk: fmt::Debug + Send + Sync + 'static {
    /// The time by which the desk decides.
    fn now(&self) -> Timestamp;

    /// All cards of a tenant that wait for a decision, oldest first.
    fn pending<'a>(&'a self, tenant: &'a str) -> BoxFuture<'a, Result<Vec<Approval>, ToolError>>;

    /// Decides a card of a tenant. Whether `decision.by` may do so is for the door to know.
    fn decide<'a>(
        &'a self,
        tenant: &'a str,
        id: ApprovalId,
        decision: Decision,
    ) -> BoxFuture<'a, Result<Approval, ToolError>>;

    /// Waits until the cards of a tenant are not at `since` any more, and gives where they are. Asked with a
    /// `since` that they are not at, it answers at once.
    fn changed<'a>(&'a self, tenant: &'a str, since: u64) -> BoxFuture<'a, Result<u64, ToolError>>;
}
