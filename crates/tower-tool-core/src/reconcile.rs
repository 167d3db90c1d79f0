//! Finding out what became of an execution whose outcome nobody knows.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{BoxFuture, CallContext, Execution, Receipt, ToolCall, ToolError, ToolErrorKind, ToolOutput};

/// What a tool is asked to find out: what became of this execution.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inquiry<I = Value> {
    /// The execution, with the key that the tool has passed on to its provider.
    pub execution: Execution,
    /// The arguments of then.
    pub arguments: I,
    /// Of the call that wants to know now: same tenant, actor and session.
    pub context: CallContext,
}

/// What a tool has found out.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "it happened, it did not, or nobody knows")]
pub enum Reconciled<O = Value> {
    /// It happened, and this is what the tool would have answered.
    Done {
        /// The answer.
        output: O,
        /// What to say about the effect.
        receipt: Option<Receipt>,
    },
    /// It did not happen, and will not any more.
    NotDone,
    /// Still nobody can say.
    StillUnknown,
}

impl<O> Reconciled<O> {
    /// It happened, and this is what the tool would have answered.
    pub const fn done(output: O) -> Self {
        Self::Done { output, receipt: None }
    }

    /// It happened, with this to say about the effect.
    pub const fn done_with_receipt(output: O, receipt: Receipt) -> Self {
        Self::Done { output, receipt: Some(receipt) }
    }
}

type Ask = dyn Fn(Execution, ToolCall) -> BoxFuture<'static, Result<Reconciled<ToolOutput>, ToolError>> + Send + Sync;

/// The hook of a spec, without its types.
#[derive(Clone)]
pub struct ReconcileHook(Arc<Ask>);

impl ReconcileHook {
    pub(crate) fn new<I, O, F, Fut>(hook: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        F: Fn(Inquiry<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reconciled<O>, ToolError>> + Send + 'static,
    {
        let hook = Arc::new(hook);
        Self(Arc::new(move |execution, call: ToolCall| {
            let hook = Arc::clone(&hook);
            Box::pin(async move {
                let arguments = I::deserialize(&**call.arguments()).map_err(|error| {
                    ToolError::new(ToolErrorKind::UnknownOutcome, "the arguments of then do not fit the hook's type")
                        .with_source(error)
                })?;
                let context = call.context.without_credentials();
                match hook(Inquiry { execution, arguments, context }).await? {
                    Reconciled::Done { output, receipt } => erase(&output, receipt),
                    Reconciled::NotDone => Ok(Reconciled::NotDone),
                    Reconciled::StillUnknown => Ok(Reconciled::StillUnknown),
                }
            })
        }))
    }

    /// Asks what became of the execution. The call carries the arguments of then. For the dispatch of a toolset.
    pub fn ask(
        &self,
        execution: Execution,
        call: ToolCall,
    ) -> BoxFuture<'static, Result<Reconciled<ToolOutput>, ToolError>> {
        (self.0)(execution, call)
    }
}

fn erase<O: Serialize>(output: &O, receipt: Option<Receipt>) -> Result<Reconciled<ToolOutput>, ToolError> {
    let data = serde_json::to_value(output)
        .map_err(|error| ToolError::internal("what was found out cannot be written as JSON").with_source(error))?;
    let output = ToolOutput::new(data);
    Ok(Reconciled::done(match receipt {
        Some(receipt) => output.with_receipt(receipt),
        None => output,
    }))
}

impl fmt::Debug for ReconcileHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReconcileHook")
    }
}
