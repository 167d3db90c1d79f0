//! Two tools of one's own: `cargo run -p custom-tool`. Their test: `cargo test -p custom-tool`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_tool::schemars::{self, JsonSchema};
use tower_tool::{
    BoxToolset, CallContext, Ledger, Principal, Risk, Scope, Stack, ToolCall, ToolSpec, Toolset, tool_fn,
};

#[derive(Deserialize, JsonSchema)]
struct AddTodo {
    /// What is to be done, in a few words.
    title: String,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Todo {
    id: usize,
    title: String,
}

fn todo_tools() -> Result<BoxToolset, Box<dyn Error>> {
    let todos = Arc::new(Mutex::new(Vec::<Todo>::new()));
    let list = Arc::clone(&todos);
    let add_todo = tool_fn(
        ToolSpec::builder("add_todo")
            .description("Add an item to the user's list. Use it when something is to be remembered.")
            .risk(Risk::ReversibleWrite)
            .input::<AddTodo>()
            .output::<Todo>()
            .build()?,
        move |args: AddTodo, _cx: CallContext| {
            let todos = Arc::clone(&todos);
            async move {
                let mut todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
                let todo = Todo { id: todos.len() + 1, title: args.title };
                todos.push(todo.clone());
                Ok(todo)
            }
        },
    );
    let list_todos = tool_fn(
        ToolSpec::builder("list_todos")
            .description("List the user's items. Use it before changing the list.")
            .risk(Risk::PrivateRead)
            .build()?,
        move |_args: Value, _cx: CallContext| {
            let todos = list.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move { Ok(json!(todos)) }
        },
    );
    let tools = Toolset::builder().tool(add_todo).tool(list_todos).build()?;
    Ok(tools.layer(Stack::recommended(&Ledger::memory())).boxed())
}

/// Adds the same item twice, as a model does that lost its first answer, and lists what there is.
async fn add_twice() -> Result<Value, Box<dyn Error>> {
    let tools = todo_tools()?;
    let cx = CallContext::new(Principal::new("home", "alice"), Scope::new("chat-1")?);
    for _ in 0..2 {
        tools.run(ToolCall::new("add_todo", json!({ "title": "buy milk" }), cx.clone())).await?;
    }
    Ok((**tools.run(ToolCall::new("list_todos", json!({}), cx)).await?.data()).clone())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", add_twice().await?);
    Ok(())
}

#[tokio::test]
async fn the_same_item_twice_is_one_item() {
    assert_eq!(add_twice().await.unwrap(), json!([{ "id": 1, "title": "buy milk" }]));
}
