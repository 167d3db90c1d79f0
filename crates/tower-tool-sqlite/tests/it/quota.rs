//! Buckets in the file.

use std::num::NonZeroU32;

use rusqlite::Connection;
use tower_tool_core::store::{BucketKey, Quota, QuotaStore as _};
use tower_tool_sqlite::SqliteStore;
use tower_tool_test::FakeClock;

use crate::directory::Directory;

/// whoever invents actors fills no disk, and is refused once there are too many. librefang/librefang#3668
#[tokio::test]
async fn there_are_only_so_many_buckets_and_full_ones_make_room() {
    let directory = Directory::new();
    let clock = FakeClock::new();
    let store = SqliteStore::builder().clock(clock.clone()).open(directory.file()).unwrap();
    let quota = Quota::per_minute(NonZeroU32::new(2).unwrap());
    let bucket = |name| BucketKey::new("acme", [name]);
    for name in ["one", "two", "three"] {
        assert_eq!(store.take(bucket(name), quota).await.unwrap(), None);
    }
    let file = Connection::open(directory.file()).unwrap();
    let counted = || file.query_row("SELECT buckets FROM totals", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(counted(), 3);
    // As if so many others were there.
    file.execute("UPDATE totals SET buckets = 1000000", []).unwrap();
    assert!(store.take(bucket("four"), quota).await.unwrap_err().is_full());
    assert_eq!(store.take(bucket("one"), quota).await.unwrap(), None, "one that is there goes on");
    clock.step_forward(std::time::Duration::from_secs(3_600));
    assert_eq!(store.take(bucket("four"), quota).await.unwrap(), None);
    assert_eq!(counted(), 1_000_000 - 2);
    let there: i64 = file.query_row("SELECT count(*) FROM buckets", [], |row| row.get(0)).unwrap();
    assert_eq!(there, 1);
}
