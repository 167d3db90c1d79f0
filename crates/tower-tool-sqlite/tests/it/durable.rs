//! Processes that share the file, die, and start again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tokio::task::JoinSet;
use tower_tool_core::store::{BucketKey, LedgerStore as _, Quota, QuotaStore as _, Record, Swap, Topic};
use tower_tool_sqlite::SqliteStore;
use tower_tool_test::record;

use crate::directory::Directory;
use crate::threads;

const FILE: &str = "TOWER_TOOL_TEST_FILE";
const PART: &str = "TOWER_TOOL_TEST_PART";

pub(crate) fn spawn(file: &Path, part: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durable::process", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .env(PART, part)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the process says, line by line.
pub(crate) fn said(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listened may have killed this already.
    let _ = writeln!(out, "@{line}").and_then(|()| out.flush());
}

pub(crate) fn pay(n: u64, store: &SqliteStore) -> Arc<Record> {
    Arc::new(record::of(["acme", "alice", "session-1", "pay"], n, store.now()))
}

/// No test of its own: what the tests start as a process, and where nobody does, nothing.
#[tokio::test]
async fn process() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let store = SqliteStore::open(PathBuf::from(file)).unwrap();
    match std::env::var(PART).unwrap().as_str() {
        "claim" => {
            for n in 0..200 {
                let record = pay(n, &store);
                if let Swap::Won(_) = store.swap(&record.key, None, Some(Arc::clone(&record))).await.unwrap() {
                    say(&n.to_string());
                }
            }
        }
        "write" => {
            for n in 0.. {
                let mut callers = JoinSet::new();
                for part in 0..4 {
                    let store = store.clone();
                    callers.spawn(async move {
                        let record = pay(n * 4 + part, &store);
                        // Known from an earlier process, or new: either way it is kept once this is said.
                        store.swap(&record.key, None, Some(Arc::clone(&record))).await.unwrap();
                        say(&(n * 4 + part).to_string());
                    });
                }
                callers.join_all().await;
            }
        }
        "look" => {
            let page = store.scan(None, 100).await.unwrap();
            (1..=page.records.len()).for_each(|n| say(&n.to_string()));
            // Both threads have their names once they have answered.
            let bucket = BucketKey::new("acme", ["look"]);
            store.take(bucket, Quota::per_second(NonZeroU32::MAX)).await.unwrap();
            // Closed as when a process ends in peace: the last one takes the log away.
            drop(store);
            threads::until_all_have_ended().await;
        }
        "change" => {
            let record = pay(7, &store);
            store.swap(&record.key, None, Some(Arc::clone(&record))).await.unwrap();
        }
        other => panic!("{other}"),
    }
    std::process::exit(0);
}

pub(crate) fn numbers(lines: impl Iterator<Item = String>) -> Vec<u64> {
    lines.filter_map(|line| line.split('@').nth(1)?.trim().parse().ok()).collect()
}

/// idempot-dev/idempot-js#182
#[test]
fn each_of_two_hundred_claims_has_one_owner_among_four_processes() {
    let directory = Directory::new();
    let mut processes: Vec<_> = (0..4).map(|_| spawn(&directory.file(), "claim")).collect();
    let mut won: Vec<u64> = processes.iter_mut().flat_map(|process| numbers(said(process))).collect();
    assert!(processes.iter_mut().all(|process| process.wait().unwrap().success()));
    won.sort_unstable();
    assert_eq!(won, (0..200).collect::<Vec<_>>());
}

/// spacejam/sled#654, cberner/redb#857
#[tokio::test]
async fn what_was_acknowledged_survives_its_process_fifty_times() {
    let directory = Directory::new();
    let mut acknowledged = 0;
    for round in 0..50 {
        let mut process = spawn(&directory.file(), "write");
        let mut lines = said(&mut process);
        // Killed in the middle, after more and more.
        let mut heard = numbers(lines.by_ref().take(12 + round));
        process.kill().unwrap();
        process.wait().unwrap();
        heard.extend(numbers(lines));
        acknowledged = acknowledged.max(heard.len());
        let store = SqliteStore::open(directory.file()).unwrap();
        for n in heard {
            assert!(store.get(&pay(n, &store).key).await.unwrap().is_some(), "record {n} of round {round} is lost");
        }
    }
    assert!(acknowledged > 20, "{acknowledged}");
}

#[tokio::test]
async fn who_waits_hears_of_a_change_in_another_process() {
    let directory = Directory::new();
    let store = SqliteStore::open(directory.file()).unwrap();
    let key = pay(7, &store).key.clone();
    let waiting = store.changed(Topic::Record(&key), 0);
    let mut process = spawn(&directory.file(), "change");
    let revision = waiting.await.unwrap();
    assert_eq!(store.get(&key).await.unwrap().unwrap().revision, revision);
    assert!(process.wait().unwrap().success());
}
