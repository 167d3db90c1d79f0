//! The rights that the docs name are enough, and no more than what is used.

use std::num::NonZeroU32;
use std::time::Duration;

use tower_tool_core::store::{BucketKey, LedgerStore as _, Quota, QuotaStore as _, Topic};
use tower_tool_redis::{RedisStore, Warning};
use tower_tool_test::record;
use tower_tool_tests::redis::{Options, RedisServer, programs};

use crate::{PARTS, begin_and_finish, win};

/// The line in the docs.
fn rights() -> Vec<String> {
    let docs = include_str!("../../src/lib.rs");
    let lines: Vec<_> = docs.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let begin = lines.iter().position(|line| line.starts_with("ACL SETUSER")).unwrap();
    lines[begin..]
        .iter()
        .take_while(|line| !line.starts_with("```"))
        .flat_map(|line| line.split_whitespace())
        .map(|word| word.trim_end_matches('\\').to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

async fn all(store: &RedisStore) {
    begin_and_finish(store, 1).await;
    let asked = record::asked(PARTS, 2, store.now());
    win(store, None, &asked).await;
    let id = asked.approval_ids().next().unwrap();
    assert!(store.by_approval("acme", id).await.unwrap().is_some());
    assert_eq!(store.pending("acme", Some(id), 9).await.unwrap().len(), 0);
    assert_eq!(store.pending("acme", None, 9).await.unwrap().len(), 1);
    assert_eq!(store.in_scope("acme", "user_42", "session-1").await.unwrap().len(), 2);
    assert_eq!(store.scan(None, 100).await.unwrap().records.len(), 2);
    let wait = store.changed(Topic::Cards("acme"), store.changed(Topic::Cards("acme"), 0).await.unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(50), wait).await.is_err());
    store.take(BucketKey::new("acme", ["a"]), Quota::per_second(NonZeroU32::MIN)).await.unwrap();
    store.swap(&asked.key, Some(asked.revision), None).await.unwrap();
}

#[tokio::test]
async fn the_rights_in_the_docs_are_enough() {
    for program in programs().unwrap() {
        let server = RedisServer::start(Options::new().program(&program)).await.unwrap();
        server.command(&rights()).await.unwrap();
        let url = format!("redis://agent:secret@{}", server.address());
        let store = RedisStore::connect(&url).await.unwrap();
        assert_eq!(store.warnings(), &[Warning::NotPersistent], "{}", program.name());
        all(&store).await;
        let denied = server.command(&["ACL", "LOG"]).await.unwrap();
        let denied = format!("{denied:?}").to_lowercase();
        // The client tells its name, where it may.
        assert!(!denied.contains("agent:") && !denied.contains("key"), "{}: {denied}", program.name());
        let other = RedisStore::builder(&url).prefix("other").connect().await.unwrap();
        assert!(other.get(&record::key(PARTS, 1)).await.is_err(), "another prefix");
    }
}

/// Neither time nor settings: less is promised, and that is said, and it works.
#[tokio::test]
async fn without_time_and_settings_it_works_and_says_so() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    server.command(&rights()).await.unwrap();
    server.command(&["ACL", "SETUSER", "agent", "-time", "-config|get"]).await.unwrap();
    let store = RedisStore::connect(&format!("redis://agent:secret@{}", server.address())).await.unwrap();
    assert_eq!(store.warnings(), &[Warning::NoTime, Warning::NotTold]);
    all(&store).await;
}
