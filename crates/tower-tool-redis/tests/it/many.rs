//! Several servers: a cluster, sentinels, replicas.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower_tool_core::store::{BucketKey, LedgerStore as _, Quota, QuotaStore as _, Record, State, Swap, Topic};
use tower_tool_redis::RedisStore;
use tower_tool_test::record;
use tower_tool_tests::redis::{Options, RedisCluster, RedisSentinels, RedisServer, until};

use crate::{begin_and_finish, claim, done, get, name_of, store_on, swap, win};

/// Writes again until it is done or somebody else's.
async fn until_won(store: &RedisStore, before: Option<&Record>, next: &Record) {
    let late = Instant::now() + Duration::from_secs(40);
    loop {
        match swap(store, before, next).await {
            Ok(Swap::Won(_)) => return,
            // An earlier try that was answered with an error.
            Ok(Swap::Lost(Some(there))) if *there == *next => return,
            other => assert!(Instant::now() < late, "no recovery: {other:?}"),
        }
        sleep_until(Instant::now() + Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_fails_over() {
    let mut cluster = RedisCluster::start(3, 1).await.unwrap();
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let other = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let kept = begin_and_finish(&store, 1).await;
    let mut all = 1;
    for n in 0..12_u64 {
        let scope = format!("scope-{n}");
        let mut asked = record::asked(["acme", "user_42", &scope, "refund"], n, store.now());
        win(&store, None, &asked).await;
        all += 1;
        let id = asked.approval_ids().next().unwrap();
        assert_eq!(other.by_approval("acme", id).await.unwrap().as_deref(), Some(&asked));
        if n % 2 == 0 {
            let since = other.changed(Topic::Cards("acme"), 0).await.unwrap();
            let approved = record::next(&asked, State::Approved);
            let ((), moved) =
                tokio::join!(win(&store, Some(&asked), &approved), other.changed(Topic::Cards("acme"), since));
            assert!(moved.unwrap() > since);
            asked = approved;
        }
        assert_eq!(get(&other, &asked.key).await.as_ref(), Some(&asked));
        assert_eq!(other.in_scope("acme", "user_42", &scope).await.unwrap(), [asked.key]);
        store.take(BucketKey::new(&scope, ["a"]), Quota::per_second(NonZeroU32::MIN)).await.unwrap();
    }
    assert_eq!(other.pending("acme", None, 100).await.unwrap().len(), 6);
    let (mut found, mut after) = (0, None);
    loop {
        let page = other.scan(after.as_deref(), 4).await.unwrap();
        found += page.records.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, all);

    let running = claim(&store, 2);
    win(&store, None, &running).await;
    for node in cluster.nodes() {
        // Replicas have what they are to take over with.
        if node.info("role").await.unwrap() == "slave" {
            node.until_in_sync().await.unwrap();
        }
    }
    sleep_until(Instant::now() + Duration::from_millis(200)).await;
    let name = name_of(&running.key);
    let killed = cluster.kill_master_of(&name).await.unwrap();
    let ended = done(&store, &running);
    let (failed_over, ()) =
        tokio::join!(cluster.until_failed_over(&name, killed), until_won(&store, Some(&running), &ended));
    failed_over.unwrap();
    assert_eq!(get(&store, &running.key).await, Some(ended));
    assert_eq!(get(&other, &kept.key).await, Some(kept));
    begin_and_finish(&other, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_name_another_master() {
    let mut servers = RedisSentinels::start(2, 3).await.unwrap();
    let store = RedisStore::sentinel(servers.urls(), RedisSentinels::NAME)
        .wait_replicas(NonZeroU32::MIN)
        .connect()
        .await
        .unwrap();
    let kept = begin_and_finish(&store, 1).await;
    let running = claim(&store, 2);
    win(&store, None, &running).await;
    sleep_until(Instant::now() + Duration::from_millis(200)).await;
    let killed = servers.kill_master().await.unwrap();
    let ended = done(&store, &running);
    let (failed_over, ()) = tokio::join!(servers.until_failed_over(killed), until_won(&store, Some(&running), &ended));
    failed_over.unwrap();
    assert_eq!(get(&store, &running.key).await, Some(ended));
    assert_eq!(get(&store, &kept.key).await, Some(kept));
}

#[tokio::test]
async fn fewer_replicas_than_demanded_are_an_error_and_what_was_written_is_written() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = RedisStore::builder(&server.url())
        .wait_replicas(NonZeroU32::MIN)
        .response_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap();
    let running = claim(&store, 1);
    assert!(swap(&store, None, &running).await.is_err());
    assert_eq!(get(&store, &running.key).await.as_ref(), Some(&running));
    let replica = RedisServer::start(Options::new().replica_of(&server)).await.unwrap();
    replica.until_in_sync().await.unwrap();
    until_won(&store, Some(&running), &done(&store, &running)).await;
    let there = store_on(&replica).await;
    until("the result on the replica", async || {
        Ok(get(&there, &running.key).await.is_some_and(|record| record.body().is_some()))
    })
    .await
    .unwrap();
}
