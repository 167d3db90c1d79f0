//! Buckets: the moment at which each would be full again.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Params, params};
use tower_tool_core::store::{BucketKey, Io, Quota, QuotaStore, StoreError};
use tower_tool_core::{Digest, Timestamp};

use crate::error::failed;
use crate::find::number;
use crate::store::SqliteStore;

/// How many buckets there are at most that are not full.
const MAX_BUCKETS: i64 = 1_000_000;

/// How many full buckets each call takes away, so that no single one pays for all.
const EMPTIED_AT_ONCE: i64 = 16;

/// How many where there is no room for another.
const EMPTIED_FOR_ROOM: i64 = 1_000;

pub(crate) const FULL_AT: &str = "SELECT full_at FROM buckets WHERE tenant = ?1 AND digest = ?2";
pub(crate) const COUNT: &str = "SELECT buckets FROM totals WHERE one = 1";
pub(crate) const EMPTY: &str = "DELETE FROM buckets WHERE (tenant, digest) IN \
     (SELECT tenant, digest FROM buckets WHERE full_at <= ?1 ORDER BY full_at LIMIT ?2)";

impl QuotaStore for SqliteStore {
    fn take<'a>(&'a self, bucket: BucketKey<'a>, quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        let (tenant, digest) = (bucket.tenant.as_bytes().to_vec(), bucket.digest);
        let clock = Arc::clone(&self.inner.clock);
        Io::later(
            self.inner.writer.ask((), move |connection, _| take(connection, &tenant, &digest, quota, clock.now())),
        )
    }
}

fn take(
    connection: &Connection,
    tenant: &[u8],
    digest: &Digest,
    quota: Quota,
    now: Timestamp,
) -> Result<Option<Duration>, StoreError> {
    // Nanoseconds, of which 63 bits last until 2262.
    let now = i128::from(now.as_millis()) * 1_000_000;
    let each = i128::try_from(quota.each().as_nanos()).unwrap_or(i128::MAX);
    let room = each.saturating_mul(i128::from(quota.burst().get()));
    let known: Option<i64> = connection
        .prepare_cached(FULL_AT)
        .and_then(|mut statement| statement.query_row(params![tenant, digest.as_bytes()], |row| row.get(0)).optional())
        .map_err(failed)?;
    let full_at = known.map_or(now, |at| i128::from(at).max(now)).saturating_add(each);
    let over = full_at - now.saturating_add(room);
    if over > 0 {
        // Rounded up to what the clock tells: told to come back after it, the caller must not be too early.
        let millis = u64::try_from((over + 999_999) / 1_000_000).unwrap_or(u64::MAX);
        return Ok(Some(Duration::from_millis(millis)));
    }
    let buckets = Buckets { connection, now: signed(now) };
    if known.is_none() {
        buckets.make_room()?;
    }
    buckets.run(
        "INSERT OR REPLACE INTO buckets (tenant, digest, full_at) VALUES (?1, ?2, ?3)",
        params![tenant, digest.as_bytes(), signed(full_at)],
    )?;
    buckets.empty(EMPTIED_AT_ONCE)?;
    Ok(None)
}

fn signed(nanos: i128) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

struct Buckets<'a> {
    connection: &'a Connection,
    now: i64,
}

impl Buckets<'_> {
    fn run(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(failed)
    }

    /// Counts one more, if there may be one more.
    fn make_room(&self) -> Result<(), StoreError> {
        let is_full = || number(self.connection, COUNT, []).map(|count| count.unwrap_or_default() >= MAX_BUCKETS);
        if is_full()? {
            self.empty(EMPTIED_FOR_ROOM)?;
            if is_full()? {
                return Err(StoreError::full());
            }
        }
        self.run("UPDATE totals SET buckets = buckets + 1 WHERE one = 1", []).map(|_| ())
    }

    /// Takes away buckets that are full: they say nothing.
    fn empty(&self, most: i64) -> Result<(), StoreError> {
        let emptied = self.run(EMPTY, params![self.now, most])?;
        if emptied > 0 {
            let emptied = i64::try_from(emptied).unwrap_or(i64::MAX);
            self.run("UPDATE totals SET buckets = buckets - ?1 WHERE one = 1", [emptied])?;
        }
        Ok(())
    }
}
