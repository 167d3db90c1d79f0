//! The rights that the docs name are enough, and no more than what is used.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use tower_tool_core::store::{BucketKey, Cap, ClosedApproval, LedgerStore as _, Limits, Quota, QuotaStore as _, Topic};
use tower_tool_redis::{RedisStore, RedisStoreBuilder, Warning};
use tower_tool_test::record;
use tower_tool_tests::redis::{Options, RedisCluster, RedisServer, programs};

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

/// Everything that a store does.
async fn all(store: &RedisStore) {
    begin_and_finish(store, 1).await;
    // A second result is more than is kept, and a claim that nobody may forget comes after an end that somebody may.
    let mut kept = begin_and_finish(store, 2).await;
    kept = record::next(&kept, record::running(store.now()));
    let current = store.get(&kept.key).await.unwrap().unwrap();
    win(store, Some(&current), &kept).await;
    let asked = record::asked(PARTS, 3, store.now());
    win(store, None, &asked).await;
    let id = asked.approval_ids().next().unwrap();
    assert!(store.by_approval("acme", id).await.unwrap().is_some());
    assert_eq!(store.pending("acme", Some(id), 9).await.unwrap().len(), 0);
    assert_eq!(store.pending("acme", None, 9).await.unwrap().len(), 1);
    // A card that was replaced, of which nothing is known but that it was.
    let mut replaced = record::asked(PARTS, 4, store.now());
    replaced.closed = vec![ClosedApproval { id: record::approval_id(), ended: "expired".into() }];
    win(store, None, &replaced).await;
    assert_eq!(store.in_scope("acme", "user_42", "session-1").await.unwrap().len(), 4);
    assert_eq!(store.scan(None, 100).await.unwrap().records.len(), 4);
    let wait = store.changed(Topic::Cards("acme"), store.changed(Topic::Cards("acme"), 0).await.unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(50), wait).await.is_err());
    store.take(BucketKey::new("acme", ["a"]), Quota::per_second(NonZeroU32::MIN)).await.unwrap();
    store.swap(&asked.key, Some(asked.revision), None).await.unwrap();
}

/// With so little room for results that they make room for each other.
fn builder(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).limits(Limits::default().with_per_scope(Cap::new(1, 1 << 20)))
}

/// The commands that the server was asked for, in small letters.
async fn used(server: &RedisServer) -> BTreeSet<String> {
    let stats = server.command(&["INFO", "commandstats"]).await.unwrap().text();
    let names = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[tokio::test]
async fn the_rights_in_the_docs_are_enough() {
    for program in programs().unwrap() {
        let server = RedisServer::start(Options::new().program(&program)).await.unwrap();
        server.command(&rights()).await.unwrap();
        let url = format!("redis://agent:secret@{}", server.address());
        let store = builder(&url).connect().await.unwrap();
        assert_eq!(store.warnings(), &[Warning::NotPersistent], "{}", program.name());
        server.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
        all(&store).await;
        // Nothing is granted that is not used: what is only for the start, or for replicas, is used elsewhere.
        let used = used(&server).await;
        for right in rights().iter().filter_map(|word| word.strip_prefix('+')) {
            let is_elsewhere = matches!(right, "config|get" | "eval" | "ping" | "wait");
            assert!(used.contains(right) || is_elsewhere, "{}: `{right}` is not used: {used:?}", program.name());
        }
        let denied = server.command(&["ACL", "LOG"]).await.unwrap();
        let denied = format!("{denied:?}").to_lowercase();
        // The client tells its name, where it may.
        assert!(!denied.contains("agent:") && !denied.contains("key"), "{}: {denied}", program.name());
        let other = RedisStore::builder(&url).prefix("other").connect().await.unwrap();
        assert!(other.get(&record::key(PARTS, 1)).await.is_err(), "another prefix");
    }
}

#[tokio::test]
async fn the_rights_in_the_docs_are_enough_for_a_cluster() {
    for program in programs().unwrap() {
        let cluster = RedisCluster::start_with(Options::new().program(&program), 3, 1).await.unwrap();
        let mut rights = rights();
        rights.push("+cluster|slots".to_owned());
        if !program.name().starts_with("redis-6.") {
            rights.extend(["+spublish", "+ssubscribe", "+sunsubscribe"].map(str::to_owned));
        }
        for node in cluster.nodes() {
            node.command(&rights).await.unwrap();
        }
        let urls = cluster.nodes().iter().map(|node| format!("redis://agent:secret@{}", node.address()));
        let store = RedisStore::cluster(urls).wait_replicas(NonZeroU32::MIN);
        let store = store.limits(Limits::default().with_per_scope(Cap::new(1, 1 << 20))).connect().await.unwrap();
        assert_eq!(store.warnings(), &[Warning::NotPersistent], "{}", program.name());
        all(&store).await;
        for node in cluster.nodes() {
            let denied = format!("{:?}", node.command(&["ACL", "LOG"]).await.unwrap()).to_lowercase();
            assert!(!denied.contains("agent:") && !denied.contains("key"), "{}: {denied}", program.name());
        }
    }
}

/// Neither time nor settings: less is promised, and that is said, and it works.
#[tokio::test]
async fn without_time_and_settings_it_works_and_says_so() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    server.command(&rights()).await.unwrap();
    server.command(&["ACL", "SETUSER", "agent", "-time", "-config|get"]).await.unwrap();
    let store = builder(&format!("redis://agent:secret@{}", server.address())).connect().await.unwrap();
    assert_eq!(store.warnings(), &[Warning::NoTime, Warning::NotTold]);
    all(&store).await;
}
