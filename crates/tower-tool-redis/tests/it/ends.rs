//! What is not needed any more goes by itself: no key is left without an end, and none that is needed has one.

use std::time::Duration;

use tower_tool_core::store::{BucketKey, LedgerStore as _, Quota, QuotaStore as _, Record};
use tower_tool_redis::RedisStore;
use tower_tool_test::record;
use tower_tool_tests::redis::{Direction, Options, Proxy, RedisServer};

use crate::{PARTS, begin_and_finish, claim, done, get, name_of, store_on, swap, until_answered, win};

/// Keys without an end, and the longest time that one with an end has left.
async fn ends(server: &RedisServer) -> (Vec<String>, Duration) {
    let (mut endless, mut longest) = (Vec::new(), 0);
    for key in server.command(&["KEYS", "*"]).await.unwrap().values() {
        let key = key.text();
        match server.command(&["PTTL", &key]).await.unwrap().integer().unwrap() {
            -1 => endless.push(key),
            left => longest = longest.max(left),
        }
    }
    endless.sort();
    (endless, Duration::from_millis(u64::try_from(longest).unwrap()))
}

/// A claim whose end nobody may forget, as the tool may still have done something.
fn kept(store: &RedisStore, n: u64) -> Record {
    let claim = claim(store, n);
    assert_eq!(claim.forget_at(), None);
    claim
}

/// aws-powertools/powertools-lambda-python#1181: a record that was made in one step and given its end in another stayed for ever.
#[tokio::test]
async fn every_key_has_an_end_but_those_of_what_nobody_knows_the_outcome_of() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = store_on(&server).await;
    let none = Vec::<String>::new();

    // First a card alone, so that executions and results come to a session that is there already.
    let asked = record::asked(PARTS, 1, store.now());
    win(&store, None, &asked).await;
    store.take(BucketKey::new("acme", ["a"]), Quota::per_hour(std::num::NonZeroU32::MIN)).await.unwrap();
    assert_eq!(ends(&server).await.0, none, "a card");
    let mut leased = claim(&store, 2);
    leased.keep_unknown = Some(Duration::from_secs(3600));
    win(&store, None, &leased).await;
    assert_eq!(ends(&server).await.0, none, "a claim that is forgotten some time");
    win(&store, Some(&leased), &done(&store, &leased)).await;
    begin_and_finish(&store, 3).await;
    assert_eq!(ends(&server).await.0, none, "results");

    let [one, other] = [kept(&store, 4), kept(&store, 5)];
    for running in [&one, &other] {
        win(&store, None, running).await;
        let (endless, _) = ends(&server).await;
        assert!(endless.contains(&name_of(&running.key)), "{endless:?}");
        assert!(endless.contains(&"agent:exec:{acme/session-1}".to_owned()), "{endless:?}");
    }
    // Another actor of the session, and another session, are no reason to go.
    win(&store, None, &record::of(["acme", "user_43", "session-1", "refund"], 6, store.now())).await;
    win(&store, None, &record::of(["acme", "user_42", "session-2", "refund"], 6, store.now())).await;
    win(&store, Some(&one), &done(&store, &one)).await;
    assert!(!ends(&server).await.0.contains(&name_of(&one.key)));
    let (endless, _) = ends(&server).await;
    assert!(endless.contains(&"agent:ends:{acme/session-1}".to_owned()), "one is still running: {endless:?}");
    win(&store, Some(&other), &done(&store, &other)).await;
    assert_eq!(ends(&server).await.0, none, "all are settled");

    // Removed, it keeps nothing.
    let last = kept(&store, 7);
    win(&store, None, &last).await;
    store.swap(&last.key, Some(last.revision), None).await.unwrap();
    for (_, n) in [(PARTS, 1), (PARTS, 2), (PARTS, 3), (PARTS, 4), (PARTS, 5)] {
        let key = record::key(PARTS, n);
        let revision = store.get(&key).await.unwrap().unwrap().revision;
        store.swap(&key, Some(revision), None).await.unwrap();
    }
    let (endless, longest) = ends(&server).await;
    assert_eq!(endless, none, "all are removed");
    // What the cards of a tenant count outlives them by a day.
    assert!(longest < Duration::from_secs(26 * 3600), "{longest:?}");
}

/// A record outlives its end by little, and is never gone before.
#[tokio::test]
async fn a_record_goes_a_moment_after_its_end() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = store_on(&server).await;
    for window in [Duration::from_millis(1), Duration::from_secs(600)] {
        let mut record = record::of(PARTS, 1, store.now());
        record.window_ends = store.now() + window;
        record.revision += u64::try_from(window.as_millis()).unwrap();
        win(&store, get(&store, &record.key).await.as_ref(), &record).await;
        let left = server.command(&["PTTL", &name_of(&record.key)]).await.unwrap().integer().unwrap();
        let left = Duration::from_millis(u64::try_from(left).unwrap());
        let most = window + Duration::from_secs(2);
        assert!(left > store.now().until(record.window_ends) && left < most, "{left:?} for {window:?}");
    }
}

/// Wherever the connection is lost, there is no record, or one with an end.
#[tokio::test]
async fn a_lost_connection_leaves_nothing_without_an_end() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let timeout = Duration::from_millis(200);
    let store = RedisStore::builder(&proxy.url()).response_timeout(timeout).connect().await.unwrap();
    for (n, (direction, byte)) in (0..).zip(
        [Direction::Commands, Direction::Replies].into_iter().flat_map(|way| [0, 1, 200, 900].map(|byte| (way, byte))),
    ) {
        let mut leased = claim(&store, n);
        leased.keep_unknown = Some(Duration::from_secs(60));
        proxy.cut_after(direction, byte);
        let _ = swap(&store, None, &leased).await;
        proxy.heal();
        until_answered(&store, &leased.key).await;
        assert_eq!(ends(&server).await.0, Vec::<String>::new(), "{direction:?} cut after {byte} bytes");
    }
}
