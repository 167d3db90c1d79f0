//! The command `tower-tool`: what operators do with a ledger.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to the one who started it")]

mod executions;
mod shown;
mod store;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tower_tool::Ledger;

use crate::store::StoreUrl;

/// What operators do with a ledger.
#[derive(Debug, Parser)]
#[command(name = "tower-tool", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What ran, what runs, and what nobody knows the outcome of.
    Executions {
        /// Where the ledger lives: `sqlite:PATH` or `redis://HOST:PORT`.
        #[arg(long, value_name = "URL", env = "IDEMPOTENCY_STORE", hide_env_values = true, global = true)]
        store: Option<StoreUrl>,
        /// The file with the key that the records in Redis are sealed with: at least 32 bytes.
        #[arg(long, value_name = "FILE", env = "IDEMPOTENCY_SEAL_KEY_FILE", global = true)]
        seal_key_file: Option<PathBuf>,
        #[command(subcommand)]
        command: executions::Command,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    match run(cli).await {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tower-tool: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because {cause}");
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<String, Box<dyn Error>> {
    match cli.command {
        Command::Executions { store, seal_key_file, command } => {
            let store = store.ok_or("name the ledger: `--store sqlite:PATH`, or set IDEMPOTENCY_STORE")?;
            let ledger = Ledger::new(store.open(seal_key_file).await?);
            command.run(&ledger).await
        }
    }
}
