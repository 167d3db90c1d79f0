//! The stores in memory have every property that a store must have.

mod ledger {
    use std::sync::{Arc, OnceLock};

    use tower_tool::memory::MemoryLedger;
    use tower_tool::store::{LedgerStore, Limits};
    use tower_tool_test::FakeClock;
    use tower_tool_test::store::{LedgerFixture, Promise};

    /// One store, however often it is opened: memory is not shared.
    #[derive(Debug, Default)]
    struct Memory {
        clock: FakeClock,
        store: OnceLock<Arc<MemoryLedger>>,
    }

    impl LedgerFixture for Memory {
        async fn open(&self, limits: Limits) -> Arc<dyn LedgerStore> {
            let open = || Arc::new(MemoryLedger::with_clock(self.clock.clone()).with_limits(limits));
            Arc::clone(self.store.get_or_init(open)) as _
        }

        fn clock(&self) -> Option<&FakeClock> {
            Some(&self.clock)
        }

        fn lacks(&self) -> &[Promise] {
            &[Promise::Durable]
        }
    }

    tower_tool_test::ledger_store_suite!(Memory::default());
}

mod quotas {
    use std::sync::{Arc, OnceLock};

    use tower_tool::memory::MemoryQuotas;
    use tower_tool::store::QuotaStore;
    use tower_tool_test::FakeClock;
    use tower_tool_test::store::QuotaFixture;

    #[derive(Debug, Default)]
    struct Memory {
        clock: FakeClock,
        store: OnceLock<Arc<MemoryQuotas>>,
    }

    impl QuotaFixture for Memory {
        async fn open(&self) -> Arc<dyn QuotaStore> {
            let open = || Arc::new(MemoryQuotas::with_clock(self.clock.clone()));
            Arc::clone(self.store.get_or_init(open)) as _
        }

        fn clock(&self) -> Option<&FakeClock> {
            Some(&self.clock)
        }
    }

    tower_tool_test::quota_store_suite!(Memory::default());
}
