//! Servers that go away, and replies that come late or not at all.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tower_tool_core::store::{LedgerStore as _, Record, Topic};
use tower_tool_redis::RedisStore;
use tower_tool_tests::redis::{Direction, Options, Proxy, RedisServer};

use crate::{claim, done, get, store_on, swap, until_answered, win};

const TIMEOUT: Duration = Duration::from_millis(400);

async fn through_proxy(server: &RedisServer) -> (Proxy, RedisStore) {
    let proxy = Proxy::start(server.address()).await.unwrap();
    let store = RedisStore::builder(&proxy.url()).response_timeout(TIMEOUT).connect().await.unwrap();
    (proxy, store)
}

#[tokio::test]
async fn a_server_that_restarts_is_found_again() {
    let mut server = RedisServer::start(Options::new().append_only().config("appendfsync", "always")).await.unwrap();
    let store = store_on(&server).await;
    let running = claim(&store, 1);
    win(&store, None, &running).await;
    let waiter = {
        let (store, running) = (store.clone(), running.clone());
        async move {
            loop {
                // An outage is an error, and no reason not to ask again.
                match store.changed(Topic::Record(&running.key), running.revision).await {
                    Ok(at) => return at,
                    Err(_) => sleep_until(Instant::now() + Duration::from_millis(20)).await,
                }
            }
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(waiter);
    for _ in 0..2 {
        server.kill();
        let begun = Instant::now();
        assert!(store.get(&running.key).await.is_err());
        assert!(swap(&store, Some(&running), &done(&store, &running)).await.is_err());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        server.restart().await.unwrap();
        assert_eq!(until_answered(&store, &running.key).await.as_deref(), Some(&running));
    }
    let ended = done(&store, &running);
    win(&store, Some(&running), &ended).await;
    let woken = timeout(Duration::from_secs(10), tasks.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(woken, ended.revision);
}

/// Who waits hears of what happened while nobody listened.
#[tokio::test]
async fn a_waiter_outlives_its_connection() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let (proxy, store) = through_proxy(&server).await;
    let direct = store_on(&server).await;
    let mut current = claim(&store, 1);
    win(&store, None, &current).await;
    for n in 0..6 {
        let next = tower_tool_test::record::next(&current, current.state.clone());
        let wait = async {
            loop {
                match store.changed(Topic::Record(&current.key), current.revision).await {
                    Ok(at) => return at,
                    Err(_) => sleep_until(Instant::now() + Duration::from_millis(5)).await,
                }
            }
        };
        let change = async {
            proxy.until("it listens", |traffic| traffic.count("SUBSCRIBE") > n).await.unwrap();
            proxy.close_all();
            win(&direct, Some(&current), &next).await;
        };
        let (at, ()) = timeout(Duration::from_secs(10), async { tokio::join!(wait, change) }).await.unwrap();
        assert_eq!(at, next.revision);
        current = next;
    }
}

/// A connection on which nothing comes any more, though nobody closed it, as one is that a firewall forgot. What was not heard is
/// seen, and then there is another connection.
#[tokio::test]
async fn a_deaf_connection_is_left() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let (proxy, store) = through_proxy(&server).await;
    let direct = store_on(&server).await;
    let mut current = claim(&store, 1);
    win(&store, None, &current).await;
    let wait = async |current: &Record| loop {
        match store.changed(Topic::Record(&current.key), current.revision).await {
            Ok(at) => return at,
            Err(_) => sleep_until(Instant::now() + Duration::from_millis(5)).await,
        }
    };
    let late = Instant::now() + Duration::from_secs(40);
    let mut is_deaf = false;
    // It always waits for something, so nobody subscribes to anything on the way and finds out like that.
    let mut always = tokio::task::JoinSet::new();
    always.spawn({
        let (store, key) = (store.clone(), current.key.clone());
        async move {
            let mut at = 0;
            loop {
                at = store.changed(Topic::Record(&key), at).await.unwrap_or(at);
            }
        }
    });
    while proxy.traffic().count("SUBSCRIBE") < 2 {
        assert!(Instant::now() < late, "nobody listens anew");
        let next = tower_tool_test::record::next(&current, current.state.clone());
        let change = async {
            proxy.until("it listens", |traffic| traffic.count("SUBSCRIBE") > 0).await.unwrap();
            proxy.swallow(Direction::Replies, !is_deaf);
            win(&direct, Some(&current), &next).await;
            sleep_until(Instant::now() + Duration::from_millis(50)).await;
            proxy.swallow(Direction::Replies, false);
        };
        let (at, ()) = timeout(Duration::from_secs(10), async { tokio::join!(wait(&current), change) }).await.unwrap();
        assert_eq!(at, next.revision);
        (current, is_deaf) = (next, true);
    }
}

/// While nobody answers, callers share the attempts to connect, which become rarer.
#[tokio::test]
async fn an_outage_is_not_a_storm() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let (proxy, store) = through_proxy(&server).await;
    let key = claim(&store, 1).key;
    proxy.refuse(true);
    proxy.close_all();
    proxy.forget();
    let (begun, mut asked) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(2) {
        let one = || async {
            let begun = Instant::now();
            assert!(store.get(&key).await.is_err());
            assert!(begun.elapsed() < TIMEOUT * 2, "{:?}", begun.elapsed());
        };
        tokio::join!(one(), one(), one(), one());
        asked += 4;
    }
    let made = proxy.traffic().connections;
    assert!(made < 16, "{made} connections for {asked} calls");
    proxy.heal();
    assert_eq!(until_answered(&store, &key).await, None);
}

/// A reply that comes after the timeout is nobody's: not of the next who asks either.
#[tokio::test]
async fn a_late_reply_is_nobodys() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let (proxy, store) = through_proxy(&server).await;
    let [one, two] = [claim(&store, 1), claim(&store, 2)];
    win(&store, None, &one).await;
    win(&store, None, &two).await;
    for _ in 0..3 {
        proxy.delay(Direction::Replies, TIMEOUT * 2);
        let begun = Instant::now();
        assert!(store.get(&one.key).await.is_err());
        assert!(begun.elapsed() < TIMEOUT * 2, "{:?}", begun.elapsed());
        proxy.heal();
        assert_eq!(get(&store, &two.key).await.as_ref(), Some(&two));
        assert_eq!(get(&store, &one.key).await.as_ref(), Some(&one));
    }
    // A swap whose reply is late was made, and is found out to have been once there are replies.
    proxy.delay(Direction::Replies, TIMEOUT + TIMEOUT / 4);
    let three = claim(&store, 3);
    let swapped = {
        let (store, three) = (store.clone(), three.clone());
        async move { swap(&store, None, &three).await }
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(swapped);
    sleep_until(Instant::now() + TIMEOUT + TIMEOUT / 8).await;
    proxy.heal();
    let swapped = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(swapped, Ok(tower_tool_core::store::Swap::Won(_))), "{swapped:?}");
}

/// A command that was held up is not run once nobody waits for it any more.
#[tokio::test]
async fn a_late_command_is_refused() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let (proxy, store) = through_proxy(&server).await;
    let direct = store_on(&server).await;
    let running = claim(&store, 1);
    win(&store, None, &running).await;
    for n in 2..5 {
        proxy.hold(Direction::Commands);
        let late = claim(&store, n);
        let begun = Instant::now();
        let ended = done(&store, &running);
        let both = tokio::join!(swap(&store, None, &late), swap(&store, Some(&running), &ended));
        assert!(both.0.is_err() && both.1.is_err(), "{both:?}");
        assert!(begun.elapsed() < TIMEOUT * 4, "{:?}", begun.elapsed());
        proxy.release(Direction::Commands);
        assert_eq!(until_answered(&store, &late.key).await, None);
        for _ in 0..10 {
            assert_eq!(get(&direct, &late.key).await, None);
            assert_eq!(get(&direct, &running.key).await.as_ref(), Some(&running));
            sleep_until(Instant::now() + Duration::from_millis(20)).await;
        }
    }
    // Nor is one whose caller went away, even where somebody else asks at once over another connection.
    let dropped = claim(&store, 9);
    proxy.hold(Direction::Commands);
    assert!(timeout(TIMEOUT / 8, swap(&store, None, &dropped)).await.is_err());
    let asked = store.get(&dropped.key).await;
    assert!(asked.is_err());
    proxy.release(Direction::Commands);
    let answer = until_answered(&store, &dropped.key).await;
    for _ in 0..20 {
        assert_eq!(store.get(&dropped.key).await.unwrap(), answer);
        sleep_until(Instant::now() + Duration::from_millis(20)).await;
    }
}

/// A server that stands still for a while, as one that is being copied or whose machine is: a claim is made once or not at all.
#[tokio::test]
async fn a_server_that_stood_still_does_nothing_late() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = RedisStore::builder(&server.url()).response_timeout(TIMEOUT).connect().await.unwrap();
    server.pause().await.unwrap();
    let late = claim(&store, 1);
    assert!(swap(&store, None, &late).await.is_err());
    server.resume().unwrap();
    assert_eq!(until_answered(&store, &late.key).await, None);
    sleep_until(Instant::now() + TIMEOUT).await;
    assert_eq!(get(&store, &late.key).await, None);
}
