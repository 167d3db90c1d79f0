//! The store has every property that a store must have, but for the caps that are the server's.

use std::sync::Arc;

use tower_tool_core::store::{LedgerStore, Limits};
use tower_tool_redis::RedisStore;
use tower_tool_test::store::{LedgerFixture, Promise};
use tower_tool_tests::redis::{Options, RedisServer};

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

tower_tool_test::ledger_store_suite!(Fixture::new().await);
