//! Serves the support desk: `cargo run -p support-desk`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to the one who started it")]

use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use support_desk::{App, Command, Config, USAGE, app};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    let config = match Command::parse(env::args_os().skip(1), |name| env::var_os(name)) {
        Ok(Command::Serve(config)) => config,
        Ok(_) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) if error.is_usage() => {
            eprint!("support-desk: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
        Err(error) => return fail(&error),
    };
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    match run(&config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

async fn run(config: &Config) -> Result<(), Box<dyn Error>> {
    let desk: App = app(config).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, config.port));
    let listener = TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    greet(config, listener.local_addr()?);
    let unfinished = desk.serve(listener, stopped()).await?;
    if unfinished > 0 {
        eprintln!("{unfinished} executions did not end in time; what came of them is unknown");
    }
    Ok(())
}

fn greet(config: &Config, address: SocketAddr) {
    println!("The support desk listens on http://{address}. Open");
    for user in &config.users {
        let role = if user.approver { ", who may decide the cards of others" } else { "" };
        println!("  http://{address}/#token={}  as {}{role}", encoded(user.token.reveal()), user.name);
    }
    match config.confirm.as_slice() {
        [] => println!("No tool asks before it runs."),
        tools => println!("Asks before it runs: {}.", tools.join(", ")),
    }
    println!("The ledger is in {}.", config.store);
    println!("In this demo everyone may decide the cards of their own calls. A deployment keeps the two apart.");
    println!("Ctrl-C stops it.");
}

/// The token as a fragment carries it. RFC 3986 §2.3.
fn encoded(token: &str) -> String {
    token
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Ready when the process is told to stop: by Ctrl-C, or as a service manager does it.
async fn stopped() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without signals it runs until it is killed.
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                () = interrupted => {}
                _ = terminated.recv() => {}
            }
            return;
        }
    }
    interrupted.await;
}

fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("support-desk: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  because {cause}");
        source = cause.source();
    }
    ExitCode::FAILURE
}
