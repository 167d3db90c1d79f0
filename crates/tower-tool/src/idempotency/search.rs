//! Finding out what became of an execution, before anybody is told that nobody knows.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tower::ServiceExt as _;
use tower_service::Service;
use tower_tool_core::store::{Arguments, StoredError};
use tower_tool_core::{Claim, Effect, Intent, LayerError, ToolCall, ToolOutput, ToolSpec, Verdict};

use super::execute::executing;
use super::service::{Idempotency, unknown};
use crate::ledger::{Lead, Lost, Outcome, Settling};

/// Named in the record as the one who settled it.
const BY: &str = "reconcile";

/// A question to the tool's own hook, asked through the layers that its result has to pass.
pub(super) struct Search {
    arguments: Arguments,
}

impl Search {
    /// `None` if the tool cannot find out, or what ran is not known any more.
    pub(super) fn new(call: &ToolCall, intent: &Intent, lost: &Lost) -> Option<Self> {
        call.spec().and_then(ToolSpec::reconcile_hook)?;
        let own = || Arguments { hash: *intent.arguments_hash(), value: Arc::clone(call.arguments()) };
        let arguments = lost.arguments.clone().or_else(|| (lost.arguments_hash == own().hash).then(own))?;
        Some(Self { arguments })
    }

    /// Asks. Whoever waits looks at the ledger again if something was found out, and is told that it is unknown otherwise.
    pub(super) async fn run<S>(
        self,
        once: Idempotency<S>,
        call: ToolCall,
        intent: Arc<Intent>,
        lost: Lost,
        lead: Lead,
        permit: OwnedSemaphorePermit,
    ) where
        S: Service<ToolCall, Response = ToolOutput> + Clone + Send + 'static,
        S::Error: LayerError + Send,
        S::Future: Send,
    {
        let Idempotency { inner, ledger, redactor } = once;
        let execution = lost.execution.clone();
        let claim = Claim::to_find_out(&intent, execution.clone());
        let about = Arc::new(intent.about(&self.arguments));
        let mut call = call.with_intent(self.arguments.value, about);
        call.marks_mut().set_claim(claim.clone());

        let key = intent.record();
        let asked = executing(key.digest, AssertUnwindSafe(inner.oneshot(call)).catch_unwind());
        let answer = timeout(ledger.settings().reconcile_within, asked).await;
        let outcome = match (claim.verdict(), answer) {
            (Some(Verdict::NotDone), _) => Some(Outcome::NotDone),
            (Some(Verdict::Done), Ok(Ok(Ok(output)))) => Some(Outcome::Completed(output)),
            // It happened, and its result is none that the tool may give.
            (Some(Verdict::Done), Ok(Ok(Err(error)))) => {
                let error = error.into_tool_error().with_execution(execution.id);
                (error.effect() == Effect::Done).then(|| Outcome::Done(StoredError::new(&redactor.error(error))))
            }
            _ => None,
        };
        match outcome {
            Some(outcome) => match ledger.settle_as(key, execution.id, &outcome, BY, None).await {
                Ok(settling) => tracing::info!(
                    execution = %execution.id, tool = %key.tool, settled = settling == Settling::Settled,
                    "it was found out what became of the execution"
                ),
                Err(error) => lead.refuse(error),
            },
            None => lead.refuse(unknown(lost)),
        }
        drop(permit);
    }
}
