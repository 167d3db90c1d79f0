//! Stores as processes share them.

use std::sync::Arc;

use tower_tool::store::{Cap, LedgerStore, Limits};
use tower_tool_redis::RedisStore;
use tower_tool_sqlite::SqliteStore;

/// Opens the store that a URL names, with room for all results.
pub(crate) async fn open(url: &str) -> Arc<dyn LedgerStore> {
    let room = Cap::new(100_000, 1 << 30);
    let limits = Limits::default().with_per_scope(room).with_in_all(room);
    match url.split_once(':') {
        Some(("sqlite", path)) => Arc::new(SqliteStore::builder().limits(limits).open(path).unwrap()),
        _ => Arc::new(RedisStore::builder(url).limits(limits).connect().await.unwrap()),
    }
}
