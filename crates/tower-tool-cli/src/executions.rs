use std::error::Error;
use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use tower_tool::ledger::ExecutionStatus;
use tower_tool::{CallContext, ExecutionId, Ledger, Principal, Scope, Settlement, ToolOutput};

use crate::shown::{self, Shown};

/// How many records are asked for at once.
const PAGE: usize = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists executions: those that run and those that nobody knows the outcome of, unless told otherwise.
    List {
        /// Of this tenant alone.
        #[arg(long)]
        tenant: Option<String>,
        /// In this state, which may be given more than once.
        #[arg(long, value_enum)]
        state: Vec<StateName>,
        /// In whatever state.
        #[arg(long, conflicts_with = "state")]
        all: bool,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Shows all that is known of an execution.
    Show {
        /// Its id.
        id: ExecutionId,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Says what became of an execution that nobody knows the outcome of.
    Settle {
        /// Its id.
        id: ExecutionId,
        #[command(flatten)]
        outcome: OutcomeArg,
        /// Who says so.
        #[arg(long, value_name = "NAME")]
        by: String,
        /// On what grounds, such as the provider's statement.
        #[arg(long, value_name = "TEXT")]
        grounds: Option<String>,
    },
    /// Ends a session: cards are withdrawn, finished records forgotten. What runs or may have run stays.
    EndScope {
        /// The tenant.
        tenant: String,
        /// The actor.
        actor: String,
        /// The session.
        scope: String,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct OutcomeArg {
    /// It happened; the result that repeats of the call get, as JSON.
    #[arg(long, value_name = "RESULT")]
    done: Option<String>,
    /// It did not happen and will not any more: the next equal call runs.
    #[arg(long)]
    not_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateName {
    Running,
    Unknown,
    Completed,
    Failed,
    Released,
}

impl StateName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unknown => "unknown",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
        }
    }
}

impl Command {
    pub(crate) async fn run(self, ledger: &Ledger) -> Result<String, Box<dyn Error>> {
        match self {
            Self::List { tenant, state, all, json } => {
                let states = match (all, state.is_empty()) {
                    (true, _) => None,
                    (false, true) => Some(vec![StateName::Running, StateName::Unknown]),
                    (false, false) => Some(state),
                };
                let wanted = |execution: &ExecutionStatus| {
                    tenant.as_deref().is_none_or(|tenant| *execution.record().key.tenant == *tenant)
                        && states
                            .as_ref()
                            .is_none_or(|states| states.iter().any(|state| state.as_str() == execution.state()))
                };
                list(ledger, wanted, json).await
            }
            Self::Show { id, json } => {
                let execution = found(ledger, id).await?;
                let shown = Shown::of(&execution);
                Ok(if json { format!("{}\n", serde_json::to_string_pretty(&shown)?) } else { shown.to_text() })
            }
            Self::Settle { id, outcome, by, grounds } => {
                let settlement = match outcome.done {
                    Some(result) => {
                        let result: Value = serde_json::from_str(&result)
                            .map_err(|error| format!("the result after `--done` is no JSON ({error})"))?;
                        Settlement::Done(ToolOutput::new(result))
                    }
                    None => Settlement::NotDone,
                };
                let execution = found(ledger, id).await?;
                ledger.settle(&execution.record().key, id, settlement, &by, grounds).await?;
                Ok(format!("{id} is {}\n", found(ledger, id).await?.state()))
            }
            Self::EndScope { tenant, actor, scope } => {
                let context = CallContext::new(Principal::new(tenant, actor), Scope::new(scope)?);
                ledger.end_scope(&context).await?;
                Ok("the session has ended\n".to_owned())
            }
        }
    }
}

async fn found(ledger: &Ledger, id: ExecutionId) -> Result<ExecutionStatus, Box<dyn Error>> {
    let found = ledger.find_execution(id).await?;
    found.ok_or_else(|| format!("the ledger knows no execution {id}: its window may have ended").into())
}

async fn list(
    ledger: &Ledger,
    wanted: impl Fn(&ExecutionStatus) -> bool,
    json: bool,
) -> Result<String, Box<dyn Error>> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = ledger.executions(after.as_deref(), PAGE).await?;
        rows.extend(page.executions.iter().filter(|execution| wanted(execution)).map(Shown::of));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    rows.sort_by(|one, other| (&one.created_at, &one.execution).cmp(&(&other.created_at, &other.execution)));
    rows.dedup_by(|one, other| one.execution == other.execution);
    if json {
        let mut lines = String::new();
        for row in &rows {
            writeln!(lines, "{}", serde_json::to_string(row)?)?;
        }
        return Ok(lines);
    }
    Ok(shown::table(&rows))
}
