//! One run of the tests, shown as it goes and counted.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::step::{Outcome, line};

/// Whether an ignored test fails the run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    Told,
    Refused,
}

/// What the test binaries and the doc tests said about themselves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    /// Which were ignored, as far as the output names them.
    pub(crate) ignored_names: Vec<String>,
}

/// Runs the tests, and adds to the counts while they run.
pub(crate) fn run(mut tests: Command, ignored: Ignored, counts: &mut Counts) -> Outcome {
    let failed = |error: io::Error| format!("the tests could not be run: {error}");
    let mut child = tests.stdout(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(output) = child.stdout.take() {
        tee(BufReader::new(output), io::stdout(), counts).map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        // A binary that died or did not compile counts no failure of its own.
        counts.failed = counts.failed.max(1);
        return Err(format!("{} ended with {status}", line(&tests)));
    }
    if counts.passed == 0 {
        return Err("no test was run".to_owned());
    }
    match ignored {
        Ignored::Refused if counts.ignored > 0 => Err(counts.tell_ignored()),
        _ => Ok(()),
    }
}

fn tee(mut from: impl BufRead, mut to: impl Write, counts: &mut Counts) -> io::Result<()> {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        counts.read(&String::from_utf8_lossy(&line));
        line.clear();
    }
    to.flush()
}

impl Counts {
    /// Takes in one line of output.
    fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|result| result.split_once(". ")) {
            for count in counts.split("; ") {
                match count.split_once(' ') {
                    Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                    Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                    Some((number, "ignored")) => self.ignored += number.parse().unwrap_or(0),
                    _ => {}
                }
            }
        } else if let Some((name, "ignored")) = line
            .strip_prefix("test ")
            .and_then(|test| test.rsplit_once(" ... "))
            .map(|(name, outcome)| (name, outcome.split(", ").next().unwrap_or_default()))
        {
            self.ignored_names.push(name.to_owned());
        }
    }

    /// How many tests were ignored, and which.
    pub(crate) fn tell_ignored(&self) -> String {
        format!("{} ignored: {}", self.ignored, self.ignored_names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(output: &str) -> Counts {
        let mut counts = Counts::default();
        tee(output.as_bytes(), io::sink(), &mut counts).unwrap();
        counts
    }

    #[test]
    fn the_results_of_all_binaries_add_up() {
        let counts = counted(
            "running 3 tests\n\
             test a ... ok\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.00s\n\
             test result: FAILED. 40 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n",
        );
        assert_eq!((counts.passed, counts.failed, counts.ignored), (42, 3, 0));
    }

    #[test]
    fn ignored_tests_are_named_doc_tests_too() {
        let counts = counted(
            "test slow ... ignored\n\
             test far ... ignored, needs a network, and a printer\n\
             test crates/core/src/lib.rs - call::Call (line 3) ... ignored\n\
             test named_ignored ... ok\n\
             test result: ok. 1 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!(counts.ignored, 3);
        assert_eq!(counts.ignored_names, ["slow", "far", "crates/core/src/lib.rs - call::Call (line 3)"]);
        assert!(counts.tell_ignored().contains("slow, far"));
    }

    #[test]
    fn what_is_shown_is_what_was_said_even_if_it_is_no_text() {
        let mut shown = Vec::new();
        let said: &[u8] = b"\xff\xfe\nno newline at the end";
        tee(said, &mut shown, &mut Counts::default()).unwrap();
        assert_eq!(shown, said);
    }

    #[test]
    fn other_lines_count_nothing() {
        let output = "test result: none\nthe test result: ok. 1 passed\ntest x ... FAILED\n";
        assert_eq!(counted(output), Counts::default());
    }
}
