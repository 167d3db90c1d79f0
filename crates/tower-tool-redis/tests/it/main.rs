//! The store on real servers.
#![cfg(feature = "server-tests")]
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests are tests")]

mod acl;
mod cluster;
mod cuts;
mod declared;
mod ends;
mod many;
mod outage;
mod room;
mod seal;
mod suite;
#[cfg(feature = "tls")]
mod tls;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_tool_core::store::{LedgerStore as _, Record, RecordKey, State, StoreError, Swap};
use tower_tool_redis::RedisStore;
use tower_tool_test::record;
use tower_tool_tests::redis::RedisServer;

/// The session that most tests are about.
const PARTS: [&str; 4] = ["acme", "user_42", "session-1", "refund"];

/// A record that runs.
fn claim(store: &RedisStore, n: u64) -> Record {
    let mut claim = record::of(PARTS, n, store.now());
    claim.state = record::running(store.now() + Duration::from_secs(60));
    claim
}

fn done(store: &RedisStore, claim: &Record) -> Record {
    record::next(claim, record::completed(serde_json::json!({ "paid": 12.5 }), store.now()))
}

async fn swap(store: &RedisStore, expected: Option<&Record>, next: &Record) -> Result<Swap, StoreError> {
    store.swap(&next.key, expected.map(|record| record.revision), Some(Arc::new(next.clone()))).await
}

async fn win(store: &RedisStore, expected: Option<&Record>, next: &Record) {
    match swap(store, expected, next).await {
        Ok(Swap::Won(won)) => assert_eq!(*won, *next),
        other => panic!("not won: {other:?}"),
    }
}

async fn get(store: &RedisStore, key: &RecordKey) -> Option<Record> {
    store.get(key).await.unwrap().map(|record| (*record).clone())
}

/// Claims, finishes, and gives what is there then.
async fn begin_and_finish(store: &RedisStore, n: u64) -> Record {
    let claim = claim(store, n);
    win(store, None, &claim).await;
    match swap(store, None, &done(store, &claim)).await {
        Ok(Swap::Lost(Some(there))) => assert_eq!(*there, claim),
        other => panic!("a second claim is not lost to the first: {other:?}"),
    }
    let done = done(store, &claim);
    win(store, Some(&claim), &done).await;
    assert_eq!(get(store, &claim.key).await.as_ref(), Some(&done));
    let State::Completed { execution, .. } = done.state else { panic!("not completed") };
    let [tenant, _, scope, _] = PARTS;
    assert_eq!(store.by_execution(tenant, scope, execution).await.unwrap().as_deref(), Some(&done));
    done
}

/// Where a record lives.
fn name_of(key: &RecordKey) -> String {
    let digest = key.digest.to_string();
    let RecordKey { tenant, scope, tool, .. } = key;
    format!("agent:idem:{{{tenant}/{scope}}}:{tool}:{}", digest.trim_start_matches("sha256:"))
}

async fn store_on(server: &RedisServer) -> RedisStore {
    RedisStore::connect(&server.url()).await.unwrap()
}

/// Asks again until there is an answer.
async fn until_answered(store: &RedisStore, key: &RecordKey) -> Option<Arc<Record>> {
    let late = Instant::now() + Duration::from_secs(30);
    loop {
        match store.get(key).await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < late, "no recovery: {error:?}"),
        }
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await;
    }
}
