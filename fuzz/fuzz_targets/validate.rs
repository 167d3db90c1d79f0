//! Any schema is taken or refused, any arguments pass or are refused, in bounded time and without a panic. The two are parted by a line break.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tower_tool::validate::ValidateLayer;
use tower_tool::{CallContext, Principal, Risk, ToolCall, ToolErrorKind, ToolSpec, Toolset, tool_fn};

fuzz_target!(|text: &str| {
    let Some((schema, arguments)) = text.split_once('\n') else { return };
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let spec = ToolSpec::builder("tool").description("A tool.").risk(Risk::PublicRead).input_schema(schema).lenient();
    let Ok(spec) = spec.build() else { return };
    let tool = tool_fn(spec, |arguments: Value, _cx: CallContext| async { Ok(arguments) });
    let Ok(tools) = Toolset::builder().tool(tool).build() else { return };
    let tools = tools.layer(ValidateLayer::new());
    let context = CallContext::without_scope(Principal::anonymous("t"));
    let Ok(call) = ToolCall::from_text("tool", arguments, context.clone()) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        match tools.run(call).await {
            Ok(output) => {
                // What passed is in normal form: it passes again, unchanged.
                let again = tools.run(ToolCall::new("tool", output.data().clone(), context)).await;
                assert_eq!(again.expect("the normal form passes").data(), output.data());
            }
            Err(error) => assert_eq!(error.kind(), ToolErrorKind::InvalidArguments),
        }
    });
});
