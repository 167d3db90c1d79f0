//! The suites are able to fail: every fault is found by the property that is meant for it.

mod ledger;
mod minimal;
mod quota;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Under paused time what never comes is noticed at once.
fn run(property: impl Future<Output = ()>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(property))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

/// All names, and the property with a name.
macro_rules! by_name {
    ($suite:ident, $fixture:ty; $($property:ident)*) => {
        const ALL: &[&str] = &[$(stringify!($property)),*];

        async fn check(property: &str, fixture: &$fixture) {
            match property {
                $(stringify!($property) => Box::pin($crate::store::$suite::$property(fixture)).await,)*
                _ => panic!("there is no property `{property}`"),
            }
        }
    };
}
use by_name;
