//! The store has every property that a store must have, but for the caps that are the server's.

use std::sync::Arc;

use tower_tool_core::store::{LedgerStore, Limits, QuotaStore};
use tower_tool_redis::RedisStore;
use tower_tool_test::store::{LedgerFixture, Promise, QuotaFixture};
use tower_tool_tests::redis::{Options, RedisServer, Value};

struct Fixture(RedisServer);

impl Fixture {
    async fn new() -> Self {
        Self(RedisServer::start(Options::new().append_only()).await.unwrap())
    }
}

impl LedgerFixture for Fixture {
    async fn open(&self, limits: Limits) -> Arc<dyn LedgerStore> {
        Arc::new(RedisStore::builder(&self.0.url()).limits(limits).connect().await.unwrap())
    }

    fn lacks(&self) -> &[Promise] {
        &[Promise::InAllCap, Promise::RecordsCap]
    }
}

impl QuotaFixture for Fixture {
    async fn open(&self) -> Arc<dyn QuotaStore> {
        Arc::new(RedisStore::connect(&self.0.url()).await.unwrap())
    }

    async fn buckets(&self) -> Option<u64> {
        match self.0.command(&["KEYS", "agent:quota:*"]).await.unwrap() {
            Value::Array(keys) => Some(keys.len() as u64),
            _ => None,
        }
    }
}

mod ledger {
    use super::Fixture;
    tower_tool_test::ledger_store_suite!(Fixture::new().await);
}

mod quota {
    use super::Fixture;
    tower_tool_test::quota_store_suite!(Fixture::new().await);
}
