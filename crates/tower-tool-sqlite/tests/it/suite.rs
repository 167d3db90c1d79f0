//! What every store is held to.

mod ledger {
    use std::sync::Arc;

    use tower_tool_core::store::{LedgerStore, Limits};
    use tower_tool_sqlite::SqliteStore;
    use tower_tool_test::FakeClock;
    use tower_tool_test::store::LedgerFixture;

    use crate::directory::Directory;

    #[derive(Debug)]
    struct File {
        directory: Directory,
        clock: FakeClock,
    }

    impl LedgerFixture for File {
        async fn open(&self, limits: Limits) -> Arc<dyn LedgerStore> {
            let store = SqliteStore::builder().limits(limits).clock(self.clock.clone()).open(self.directory.file());
            Arc::new(store.unwrap())
        }

        fn clock(&self) -> Option<&FakeClock> {
            Some(&self.clock)
        }
    }

    tower_tool_test::ledger_store_suite!(File { directory: Directory::new(), clock: FakeClock::new() });
}

mod quotas {
    use std::sync::Arc;

    use tower_tool_core::store::QuotaStore;
    use tower_tool_sqlite::SqliteStore;
    use tower_tool_test::FakeClock;
    use tower_tool_test::store::QuotaFixture;

    use crate::directory::Directory;

    #[derive(Debug)]
    struct File {
        directory: Directory,
        clock: FakeClock,
    }

    impl QuotaFixture for File {
        async fn open(&self) -> Arc<dyn QuotaStore> {
            let store = SqliteStore::builder().clock(self.clock.clone()).open(self.directory.file());
            Arc::new(store.unwrap())
        }

        async fn buckets(&self) -> Option<u64> {
            let file = rusqlite::Connection::open(self.directory.file()).unwrap();
            let count: i64 = file.query_row("SELECT count(*) FROM buckets", [], |row| row.get(0)).unwrap();
            count.try_into().ok()
        }

        fn clock(&self) -> Option<&FakeClock> {
            Some(&self.clock)
        }
    }

    tower_tool_test::quota_store_suite!(File { directory: Directory::new(), clock: FakeClock::new() });
}
