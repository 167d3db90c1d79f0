//! Connections cut at every byte of a claim and of an end, on the way there and on the way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tower_tool_core::store::{LedgerStore as _, Record, Swap};
use tower_tool_redis::RedisStore;
use tower_tool_test::record;
use tower_tool_tests::redis::{Direction, Options, Proxy, RedisServer};

use crate::{claim, done, get, store_on, swap, until_answered, win};

/// Connections that are cut at the same time.
const LANES: u64 = 12;

/// What happens at this byte.
struct Cut {
    direction: Direction,
    ends: bool,
}

async fn cut_at(
    lane: (&Proxy, &RedisStore),
    direct: &RedisStore,
    others: &Record,
    cut: &Cut,
    n: u64,
    byte: u64,
) -> Record {
    let (proxy, store) = lane;
    let running = claim(store, n);
    let (before, next) = if cut.ends {
        win(direct, None, &running).await;
        (Some(&running), done(store, &running))
    } else {
        (None, running.clone())
    };
    proxy.cut_after(cut.direction, byte);
    let answer = swap(store, before, &next).await;
    proxy.heal();
    let there = until_answered(store, &next.key).await;
    match &answer {
        Ok(Swap::Won(_)) => assert_eq!(there.as_deref(), Some(&next), "won at byte {byte}"),
        Ok(Swap::Lost(other)) => panic!("nobody else was there at byte {byte}: {other:?}"),
        Err(_) => assert!(there.as_deref() == Some(&next) || there.as_deref() == before, "byte {byte}: {there:?}"),
    }
    assert_eq!(get(store, &others.key).await.as_ref(), Some(others), "another's record at byte {byte}");
    there.as_deref().or(before).unwrap_or(&running).clone()
}

async fn everywhere(direction: Direction, ends: bool) {
    let server = Arc::new(RedisServer::start(Options::new()).await.unwrap());
    let direct = store_on(&server).await;
    let mut others = record::of(["other", "user_1", "session-1", "pay"], 1, direct.now());
    others.state = record::completed(serde_json::json!("theirs"), direct.now());
    win(&direct, None, &others).await;
    let bytes = Arc::new(AtomicU64::new(0));
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let (server, direct, others, bytes) = (Arc::clone(&server), direct.clone(), others.clone(), Arc::clone(&bytes));
        lanes.spawn(async move {
            let proxy = Proxy::start(server.address()).await.unwrap();
            let timeout = Duration::from_millis(600);
            let store = RedisStore::builder(&proxy.url()).response_timeout(timeout).connect().await.unwrap();
            let first = claim(&store, 1_000_000 + lane);
            win(&store, None, &first).await;
            proxy.forget();
            let whole = if ends {
                win(&store, Some(&first), &done(&store, &first)).await;
                proxy.traffic()
            } else {
                win(&store, None, &claim(&store, 2_000_000 + lane)).await;
                proxy.traffic()
            };
            let length = if direction == Direction::Commands { whole.command_bytes } else { whole.reply_bytes };
            let cut = Cut { direction, ends };
            let mut seen = Vec::new();
            loop {
                let byte = bytes.fetch_add(1, Ordering::Relaxed);
                if byte >= length {
                    return (length, proxy.traffic().cuts, seen);
                }
                let there = cut_at((&proxy, &store), &direct, &others, &cut, byte, byte).await;
                seen.push((there, get(&direct, &record::key(crate::PARTS, byte)).await));
            }
        });
    }
    let (mut tried, mut cuts) = (0, 0);
    while let Some(lane) = lanes.join_next().await {
        let (length, lane_cuts, seen) = lane.unwrap();
        (tried, cuts) = (length.max(tried), cuts + lane_cuts);
        // Long after every deadline it is what it was.
        for (record, there) in seen {
            // There are more results than are kept of a session.
            let without = |record: Option<Record>| record.map(|record| record.without_body());
            assert_eq!(without(get(&direct, &record.key).await), without(there));
        }
    }
    assert!(cuts + LANES >= tried && tried > 20, "{cuts} cuts in {tried} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_claim() {
    everywhere(Direction::Commands, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_reply_to_a_claim() {
    everywhere(Direction::Replies, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_end() {
    everywhere(Direction::Commands, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_reply_to_an_end() {
    everywhere(Direction::Replies, true).await;
}
