//! Scripts touch the keys that they name, and no others: servers that spread keys refuse anything else.
//!
//! developerz-ai/wurk#92: keys that were made up within a script.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use tower_tool_core::store::{BucketKey, LedgerStore as _, Limits, Quota, QuotaStore as _};
use tower_tool_redis::RedisStore;
use tower_tool_test::record;
use tower_tool_tests::redis::{Options, RedisServer};

use crate::{PARTS, begin_and_finish, win};

/// The words of a line of `MONITOR`, and whether a script said them.
fn read(line: &str) -> (bool, Vec<String>) {
    let (head, rest) = line.split_once("] \"").unwrap_or_default();
    (head.ends_with(" lua"), rest.trim_end_matches(['"', '\r', '\n']).split("\" \"").map(str::to_owned).collect())
}

#[tokio::test]
async fn scripts_touch_the_keys_that_they_name() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let limits = Limits::default().with_per_scope(tower_tool_core::store::Cap::new(1, 1 << 20));
    let store = RedisStore::builder(&server.url()).seal_key(&[7; 32]).limits(limits).connect().await.unwrap();
    let mut monitor = BufReader::new(TcpStream::connect(server.address()).unwrap());
    monitor.get_mut().write_all(b"MONITOR\r\n").unwrap();
    let mut ready = String::new();
    monitor.read_line(&mut ready).unwrap();
    assert_eq!(ready, "+OK\r\n");
    // Everything that scripts do: results that make room, cards, records whose time is over, removal, buckets.
    for n in 1..4 {
        begin_and_finish(&store, n).await;
    }
    let asked = record::asked(PARTS, 4, store.now());
    win(&store, None, &asked).await;
    let mut over = record::asked(PARTS, 5, store.now());
    over.window_ends = over.created_at;
    win(&store, None, &over).await;
    store.swap(&asked.key, Some(asked.revision), None).await.unwrap();
    store.take(BucketKey::new("acme", ["a"]), Quota::per_second(std::num::NonZeroU32::MIN)).await.unwrap();
    server.command(&["PING", "the-end"]).await.unwrap();

    let (mut named, mut commands, mut touched) = (BTreeSet::new(), BTreeSet::new(), 0);
    for line in monitor.lines() {
        let (is_script, words) = read(&line.unwrap());
        let [command, rest @ ..] = &words[..] else { continue };
        if rest == ["the-end"] {
            break;
        }
        if is_script && !matches!(command.as_str(), "TIME" | "PUBLISH") {
            assert!(named.contains(&rest[0]), "`{command}` touches `{}`, which is not named", rest[0]);
            commands.insert(command.clone());
            touched += 1;
        } else if matches!(command.as_str(), "EVALSHA" | "EVAL") {
            let count: usize = rest[1].parse().unwrap();
            named = rest[2..2 + count].iter().cloned().collect();
        }
    }
    assert!(touched > 100 && commands.len() > 12, "{touched} keys, {commands:?}");
}
