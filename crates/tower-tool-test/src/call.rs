//! Calls as a layer gets them, without a toolset around it.

use std::sync::Arc;

use serde_json::Value;
use tower_tool_core::marks::{Check, Entry, Marks};
use tower_tool_core::{
    BoxFuture, CallContext, Intent, Invoke, Principal, Scope, ToolCall, ToolError, ToolOutput, ToolSpec,
};

/// A call by `user_42` of the tenant `acme` in the scope `session-1`.
///
/// # Panics
///
/// Never: the scope is a valid one.
pub fn context() -> CallContext {
    match Scope::new("session-1") {
        Ok(scope) => CallContext::new(Principal::new("acme", "user_42"), scope),
        Err(error) => panic!("{error}"),
    }
}

/// A call as a toolset hands it to its stack: the tool is looked up, and nothing is validated yet.
///
/// The entry's check accepts everything as it is, and its service refuses to run: what is tested is a layer.
/// [`MockTool::looked_up`](crate::MockTool::looked_up) gives a call that can be dispatched.
///
/// No layer has [entered](ToolCall::enter) the call, so any layer may stand outermost.
pub fn looked_up<I, O>(spec: &ToolSpec<I, O>, arguments: impl Into<Arc<Value>>, context: CallContext) -> ToolCall {
    with_service(spec.erase(), Arc::new(NotDispatched), arguments, context)
}

/// A call as validation hands it on: looked up, with the intent of exactly these arguments, which the journal has noted.
///
/// Otherwise like [`looked_up`].
///
/// ```
/// use serde_json::json;
/// use tower_tool_core::{Risk, ToolSpec};
/// use tower_tool_test::call;
///
/// let spec = ToolSpec::builder("close_ticket")
///     .description("Close a ticket.")
///     .risk(Risk::ReversibleWrite)
///     .build()?;
/// let call = call::prepared(&spec, json!({ "ticket": "TK-1" }), call::context());
/// let intent = call.marks().intent().expect("a prepared call has one");
/// assert!(intent.is_of("close_ticket", call.arguments(), &call.context));
/// # Ok::<(), tower_tool_core::SpecError>(())
/// ```
pub fn prepared<I, O>(spec: &ToolSpec<I, O>, arguments: impl Into<Arc<Value>>, context: CallContext) -> ToolCall {
    validated(looked_up(spec, arguments, context))
}

pub(crate) fn with_service(
    spec: ToolSpec,
    service: Arc<dyn Invoke>,
    arguments: impl Into<Arc<Value>>,
    context: CallContext,
) -> ToolCall {
    let mut call = ToolCall::new(spec.name(), arguments, context);
    let entry = Entry::new(spec, Arc::new(AcceptAll), Some(service));
    *call.marks_mut() = Marks::looked_up(Some(Arc::new(entry)));
    call
}

pub(crate) fn validated(call: ToolCall) -> ToolCall {
    let arguments = Arc::clone(call.arguments());
    let intent = Intent::new(call.name(), &arguments, &call.context);
    call.journal().validated(&intent);
    call.with_intent(arguments, Arc::new(intent))
}

struct AcceptAll;

impl Check for AcceptAll {
    fn arguments(&self, arguments: &Arc<Value>) -> Result<Arc<Value>, ToolError> {
        Ok(Arc::clone(arguments))
    }

    fn output(&self, _: &Value) -> Result<(), ToolError> {
        Ok(())
    }
}

struct NotDispatched;

impl Invoke for NotDispatched {
    fn invoke(&self, _: ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(std::future::ready(Err(ToolError::internal(
            "a call that was prepared without a tool cannot be dispatched",
        ))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tower_tool_core::journal::Note;
    use tower_tool_core::{Risk, ToolErrorKind};

    use super::*;
    use crate::MockTool;

    #[test]
    fn marks_are_as_toolset_and_validation_leave_them() {
        let tool = MockTool::new("delete_account", Risk::Critical);
        let call = looked_up(tool.spec(), json!({}), context());
        assert!(call.marks().is_looked_up() && call.marks().is_demanded());
        assert!(call.marks().intent().is_none());

        let call = prepared(tool.spec(), json!({}), context());
        let intent = call.marks().intent().unwrap();
        assert!(intent.is_attributable());
        let noted = Note::Validated { intent: intent.record().digest, arguments_hash: *intent.arguments_hash() };
        assert!(call.journal().any(|note| *note == noted));
        assert!(call.marks().grant().is_none() && call.marks().claim().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_call_that_was_prepared_with_a_tool_can_be_dispatched() {
        let tool = MockTool::new("get_status", Risk::PublicRead);
        let without = prepared(tool.spec(), json!({}), context());
        let with = tool.prepared(json!({}), context());
        for (call, answered) in [(without, false), (with, true)] {
            let service = call.marks().entry().unwrap().service().unwrap().clone();
            let answer = service.invoke(call).await;
            assert_eq!(answer.is_ok(), answered);
            assert!(answered || answer.unwrap_err().kind() == ToolErrorKind::Internal);
        }
        tool.assert_calls(1);
    }
}
