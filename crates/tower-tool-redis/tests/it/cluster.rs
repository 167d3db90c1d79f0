//! Clusters: every property of a store, what is announced, and a node that does not answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower_tool_core::store::{LedgerStore, Limits, Record, Topic};
use tower_tool_redis::{RedisStore, Warning};
use tower_tool_test::record;
use tower_tool_test::store::{LedgerFixture, Promise};
use tower_tool_tests::redis::{Options, RedisCluster, programs, until};

use crate::{claim, done, name_of, win};

/// Properties that are tried side by side.
const LANES: usize = 6;

/// A place of its own in a cluster that others use too.
struct Place {
    urls: Vec<String>,
    prefix: &'static str,
}

impl LedgerFixture for Place {
    async fn open(&self, limits: Limits) -> Arc<dyn LedgerStore> {
        let builder = RedisStore::cluster(self.urls.clone()).prefix(self.prefix).limits(limits);
        Arc::new(builder.connect().await.unwrap())
    }

    fn lacks(&self) -> &[Promise] {
        &[Promise::InAllCap, Promise::RecordsCap]
    }
}

type Property = (&'static str, fn(Place));

macro_rules! listed {
    (; $($property:ident)*) => {
        const PROPERTIES: &[Property] = &[$((stringify!($property), |place| {
            tower_tool_test::store::run(async move { tower_tool_test::store::ledger::$property(&place).await });
        })),*];
    };
}

tower_tool_test::__ledger_properties! { listed {} }

/// The slots of a cluster are many servers, and a tenant's cards are not where its records are.
#[test]
fn a_cluster_has_every_property() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cluster = runtime.block_on(RedisCluster::start_with(Options::new().append_only(), 3, 0)).unwrap();
    let left: Mutex<VecDeque<_>> = Mutex::new(PROPERTIES.iter().collect());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().pop_front();
                    let Some((name, property)) = next else { return };
                    // A failure would not say what failed.
                    let told = std::panic::catch_unwind(|| property(Place { urls: cluster.urls(), prefix: name }));
                    assert!(told.is_ok(), "{name}");
                }
            });
        }
    });
}

/// Records of several sessions, and where each of them is.
async fn spread(cluster: &RedisCluster, store: &RedisStore) -> Vec<(usize, Record)> {
    let mut records = Vec::new();
    for n in 0..12 {
        let mut running = claim(store, n);
        running.key = record::key(["acme", "user_42", &format!("session-{n}"), "refund"], n);
        win(store, None, &running).await;
        records.push((cluster.master_of(&name_of(&running.key)).await.unwrap(), running));
    }
    records
}

/// An announcement reaches who waits, whatever the server can, and does not go through the whole cluster where it need not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_announced_in_their_slot() {
    for program in programs().unwrap() {
        let cluster = RedisCluster::start_with(Options::new().program(&program), 3, 0).await.unwrap();
        let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
        let other = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
        let is_sharded = !program.name().starts_with("redis-6.");
        for (_, running) in spread(&cluster, &store).await {
            let listens = async |command: &str| {
                let mut all = String::new();
                for node in cluster.nodes() {
                    all += &node.command(&["PUBSUB", command]).await?.text();
                }
                Ok(all.contains(&*running.key.scope))
            };
            let ended = done(&store, &running);
            let changed = async {
                until("a listener", || listens(if is_sharded { "SHARDCHANNELS" } else { "CHANNELS" })).await.unwrap();
                // Who waits looks again after a second, at the latest.
                let begun = Instant::now();
                win(&store, Some(&running), &ended).await;
                begun
            };
            let waited = async {
                let at = other.changed(Topic::Record(&running.key), running.revision).await;
                (at.unwrap(), Instant::now())
            };
            let (begun, (at, woken)) = tokio::join!(changed, waited);
            assert_eq!(at, ended.revision);
            assert!(woken - begun < Duration::from_millis(900), "{}: {:?}", program.name(), woken - begun);
            assert!(!is_sharded || !listens("CHANNELS").await.unwrap(), "{}", program.name());
        }
    }
}

#[tokio::test]
async fn what_one_master_may_forget_is_said() {
    let cluster = RedisCluster::start(3, 0).await.unwrap();
    let last = cluster.node(2).unwrap();
    last.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).await.unwrap();
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let mut warnings = store.warnings().to_vec();
    warnings.sort_by_key(ToString::to_string);
    assert_eq!(warnings, [Warning::MayEvict("volatile-ttl".into()), Warning::NotPersistent]);
}

/// Its sessions wait until another takes over, and nobody else does: as when a machine is away and nothing says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_holds_up_only_its_own() {
    let cluster = RedisCluster::start(3, 1).await.unwrap();
    let timeout = Duration::from_millis(600);
    let store = RedisStore::cluster(cluster.urls()).response_timeout(timeout).connect().await.unwrap();
    let records = spread(&cluster, &store).await;
    let (still, _) = records[0];
    let (own, others): (Vec<_>, Vec<_>) = records.iter().partition(|(node, _)| *node == still);
    assert!(others.len() > 2);
    for node in cluster.nodes() {
        if node.info("role").await.unwrap() == "slave" {
            node.until_in_sync().await.unwrap();
        }
    }
    sleep_until(Instant::now() + Duration::from_millis(200)).await;
    cluster.node(still).unwrap().pause().await.unwrap();
    let late = Instant::now() + Duration::from_secs(40);
    let (mut answered, mut failed) = (0, 0);
    loop {
        let all = async {
            for (_, other) in &others {
                match store.get(&other.key).await {
                    Ok(there) => {
                        assert_eq!(there.as_deref(), Some(other));
                        answered += 1;
                    }
                    Err(_) => failed += 1,
                }
            }
        };
        let (one, ()) = tokio::join!(store.get(&own[0].1.key), all);
        if one.is_ok_and(|there| there.as_deref() == Some(&own[0].1)) {
            break;
        }
        assert!(Instant::now() < late, "no recovery; {answered} others were answered, {failed} were not");
    }
    assert!(answered > others.len() && failed * 4 < answered, "{answered} others were answered, {failed} were not");
    for (_, record) in &records {
        win(&store, Some(record), &done(&store, record)).await;
    }
}
