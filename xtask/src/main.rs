//! The project's own commands: `cargo xtask test` is the whole suite, `cargo xtask ci` adds every other check.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to the one who called it")]

mod install;
mod members;
mod redis;
mod service;
mod step;
mod suite;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use crate::redis::Servers;
use crate::service::Service;
use crate::step::{Outcome, Steps, cargo, run};
use crate::suite::{Counts, Ignored};

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  test    install what the tests need, start their services, run every test, stop what was started
  ci      formatting, lints, docs and the feature matrix, then `test` with no test ignored, then `cargo deny`
  help    print this text

environment:
  CHROMIUM, CHROMEDRIVER    the browser and its driver, where they are not on the path
  REDIS_SERVER              the Redis server, where it is not on the path
  TOWER_TOOL_CORPORA        the directory of the corpora; without it the tests over them are left out
";

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("test"), None) => {
            let mut steps = Steps::default();
            let counts = test(&mut steps, Ignored::Told);
            conclude(&steps, &counts)
        }
        (Some("ci"), None) => {
            let mut steps = Steps::default();
            let counts = ci(&mut steps);
            conclude(&steps, &counts)
        }
        (Some("help" | "--help" | "-h"), None) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs every test that there is, around the services that they need.
fn test(steps: &mut Steps, ignored: Ignored) -> Counts {
    let mut counts = Counts::default();
    if env::var_os("TOWER_TOOL_CORPORA").is_none_or(|directory| directory.is_empty()) {
        steps.notice("TOWER_TOOL_CORPORA is not set: the tests over the corpora are LEFT OUT");
    }
    let Some(browser) = steps.run("browser", install::browser) else {
        return counts;
    };
    let Some(driver) = steps.run("start chromedriver", || Service::chromedriver(&browser)) else {
        return counts;
    };
    let Some(own) = steps.run("redis", install::redis) else {
        return counts;
    };
    let servers = servers(steps, &own, ignored);
    let Some(redis) = steps.run("start redis", || Service::redis(&own)) else {
        return counts;
    };
    steps.run("tests", || {
        let mut tests = cargo(["test", "--workspace", "--all-features", "--no-fail-fast"]);
        tests.env("CHROMIUM", &browser.chromium).env("CHROMEDRIVER_URL", driver.url());
        tests.env("REDIS_SERVER", &own).env("REDIS_SERVERS", servers.list()).env("REDIS_URL", redis.url());
        suite::run(tests, ignored, &mut counts)
    });
    steps.run("stop chromedriver and redis", || {
        drop((driver, redis));
        Ok(())
    });
    for features in ["preserve_order", "arbitrary_precision"] {
        steps.run(&format!("fingerprints with {features} in serde_json"), || {
            let manifest = "tests/serde-features/Cargo.toml";
            let target = "target/serde-features";
            let tests = cargo([
                "test",
                "--locked",
                "--manifest-path",
                manifest,
                "--target-dir",
                target,
                "--features",
                features,
            ]);
            suite::run(tests, ignored, &mut counts)
        });
    }
    if counts.ignored > 0 {
        steps.notice(format!("tests were left out: {}", counts.tell_ignored()));
    }
    counts
}

/// Gets the servers of other versions. Where no test may be left out, none of them may be missing.
fn servers(steps: &mut Steps, own: &Path, ignored: Ignored) -> Servers {
    let mut servers = Servers::default();
    steps.run("redis and valkey of other versions", || {
        servers = redis::servers(own);
        match ignored {
            Ignored::Refused => servers.complete(),
            Ignored::Told => Ok(()),
        }
    });
    if ignored == Ignored::Told {
        servers.missing.iter().for_each(|missing| steps.notice(missing.as_str()));
    }
    servers
}

/// Runs every check. One that fails does not keep the others from being run.
fn ci(steps: &mut Steps) -> Counts {
    steps.run("formatting", || run(cargo(["fmt", "--all", "--check"])));
    let members = steps.run("members", members::read).unwrap_or_default();
    steps.run("inheritance", || members::check(&members));
    steps.run("clippy", || clippy(&["--workspace", "--all-targets", "--all-features"]));
    steps.run("docs", || {
        let mut docs = cargo(["doc", "--workspace", "--no-deps", "--all-features"]);
        docs.env("RUSTDOCFLAGS", "-D warnings");
        run(docs)
    });
    for member in members.iter().filter(|member| member.library) {
        let name = &member.name;
        steps.run(&format!("features of {name}"), || {
            clippy(&["--package", name, "--no-default-features"])?;
            member.features.iter().try_for_each(|feature| {
                println!("only `{feature}`");
                clippy(&["--package", name, "--no-default-features", "--features", feature])
            })
        });
    }
    let counts = test(steps, Ignored::Refused);
    deny(steps);
    counts
}

fn clippy(selection: &[&str]) -> Outcome {
    let mut clippy = cargo(["clippy"]);
    clippy.args(selection).args(["--", "-D", "warnings"]);
    run(clippy)
}

/// Asks `cargo deny`, where it is installed.
fn deny(steps: &mut Steps) {
    let installed = cargo(["deny", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        steps.notice("`cargo deny` is not installed: licences, bans and sources were NOT CHECKED");
        return;
    }
    let check = |what: &[&str]| {
        let mut deny = cargo(["deny", "--all-features", "check"]);
        deny.args(what);
        run(deny)
    };
    steps.run("deny", || check(&["licenses", "bans", "sources"]));
    // The world may publish an advisory at any time, and that breaks nothing here.
    if let Some(Err(failure)) = steps.run("advisories, reported only", || Ok(check(&["advisories"]))) {
        steps.notice(format!("advisories: {failure}"));
    }
}

/// Prints what came of every step and, on a line of its own, of the tests.
fn conclude(steps: &Steps, counts: &Counts) -> ExitCode {
    let succeeded = steps.summarize();
    println!("{} passed, {} failed", counts.passed, counts.failed);
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
