//! Steps: what was done, how long it took, and what came of it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The directory of the workspace.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A directory for what these commands make and fetch: `target/xtask/` and this name, absolute.
pub(crate) fn scratch(name: &str) -> Outcome<PathBuf> {
    let directory = Path::new(ROOT).join("target/xtask").join(name);
    let made = fs::create_dir_all(&directory).and_then(|()| fs::canonicalize(&directory));
    made.map_err(|error| format!("`{}` could not be made: {error}", directory.display()))
}

/// What a step gives, or why it failed, in the words that the summary prints.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The steps that were run so far, and what is to be said at the end.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<Done>,
    notices: Vec<String>,
}

struct Done {
    name: String,
    took: Duration,
    failure: Option<String>,
}

impl Steps {
    /// Runs one step under its header, and gives what it gave unless it failed.
    pub(crate) fn run<T>(&mut self, name: &str, work: impl FnOnce() -> Outcome<T>) -> Option<T> {
        println!("\n==> {name}");
        let started = now();
        let outcome = work();
        let took = started.elapsed();
        let (given, failure) = match outcome {
            Ok(given) => (Some(given), None),
            Err(failure) => (None, Some(failure)),
        };
        match &failure {
            None => println!("    {name}: {:.1} s", took.as_secs_f64()),
            Some(failure) => eprintln!("    {name}: FAILED after {:.1} s: {failure}", took.as_secs_f64()),
        }
        self.done.push(Done { name: name.to_owned(), took, failure });
        given
    }

    /// Says something now that must not be overlooked, and once more in the summary.
    pub(crate) fn notice(&mut self, text: impl Into<String>) {
        let text = text.into();
        println!("\n!!! {text}");
        self.notices.push(text);
    }

    /// Prints the summary, and tells whether every step succeeded.
    pub(crate) fn summarize(&self) -> bool {
        println!("\n==> summary");
        for Done { name, took, failure } in &self.done {
            let took = took.as_secs_f64();
            match failure {
                None => println!("    ok      {took:>7.1} s  {name}"),
                Some(failure) => println!("    FAILED  {took:>7.1} s  {name}: {failure}"),
            }
        }
        for notice in &self.notices {
            println!("    !!! {notice}");
        }
        self.done.iter().all(|done| done.failure.is_none())
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a step took is told to a person and decides nothing")]
fn now() -> Instant {
    Instant::now()
}

/// The cargo that runs this, to be run again in the workspace.
pub(crate) fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(ROOT);
    command
}

/// Runs a command to its end, with its output shown.
pub(crate) fn run(mut command: Command) -> Outcome {
    let status = command.status().map_err(|error| format!("{} could not be run: {error}", line(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", line(&command))) }
}

/// The command as it is typed, for messages.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    format!("`{}`", words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" "))
}
