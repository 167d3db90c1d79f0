//! Tools over HTTP with hyper alone: `cargo run -p hyper-server -- 127.0.0.1:3001`. Its test: `cargo test -p hyper-server`.
#![expect(clippy::print_stdout, reason = "a program says where it is")]

use std::error::Error;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower_tool::{CallContext, Ledger, Principal, Risk, Stack, ToolSpec, Toolset, tool_fn};
use tower_tool_axum::{Identity, StaticTokens, ToolRouter};

fn router(ledger: &Ledger, token: &str) -> Result<ToolRouter, Box<dyn Error>> {
    let opening_hours = tool_fn(
        ToolSpec::builder("opening_hours")
            .description("When the shop is open. Use it when somebody asks.")
            .risk(Risk::PublicRead)
            .build()?,
        |_: Value, _: CallContext| async { Ok(json!({ "open": "08:00", "close": "18:00" })) },
    );
    let ring_the_bell = tool_fn(
        ToolSpec::builder("ring_the_bell")
            .description("Ring the bell at the counter. Use it once when a customer waits.")
            .risk(Risk::ReversibleWrite)
            .build()?,
        |_: Value, _: CallContext| async { Ok(json!("ding")) },
    );
    let tools = Toolset::builder().tool(opening_hours).tool(ring_the_bell).build()?.layer(Stack::recommended(ledger));
    let tokens = StaticTokens::new().with(token, Identity::new(Principal::new("shop", "clerk")))?;
    Ok(ToolRouter::builder(ledger, tokens).tools(tools).build()?)
}

/// Serves until the process is told to end, and then until what runs has ended.
async fn serve(
    listener: TcpListener,
    router: ToolRouter,
    ledger: Ledger,
    end: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let mut connections = JoinSet::new();
    let mut end = std::pin::pin!(end);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // This one client is gone; the others are not.
                Err(_) => continue,
            },
            Some(_) = connections.join_next() => continue,
            () = &mut end => break,
        };
        let service = TowerToHyperService::new(router.clone());
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new());
        connections.spawn(http.serve_connection(TokioIo::new(stream), service));
    }
    ledger.drain(Duration::from_secs(10)).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3001")).await?;
    let ledger = Ledger::memory();
    let token = std::env::var("TOKEN").unwrap_or_else(|_| "for-this-demo-only".to_owned());
    println!("http://{} with the token `{token}`", listener.local_addr()?);
    let end = async { _ = tokio::signal::ctrl_c().await };
    serve(listener, router(&ledger, &token)?, ledger, end).await
}

#[cfg(test)]
mod tests;
