//! Buckets: the moment at which each would be full again.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use tower_tool_core::store::{Quota, StoreError};
use tower_tool_core::{Digest, Timestamp};

use crate::error::failed;

/// How many full buckets each call takes away, so that no single one pays for all.
const EMPTIED_AT_ONCE: i64 = 4;

pub(crate) fn take(
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
        .prepare_cached("SELECT full_at FROM buckets WHERE tenant = ?1 AND digest = ?2")
        .and_then(|mut statement| statement.query_row(params![tenant, digest.as_bytes()], |row| row.get(0)).optional())
        .map_err(failed)?;
    let full_at = known.map_or(now, |at| i128::from(at).max(now)).saturating_add(each);
    let over = full_at - now.saturating_add(room);
    if over > 0 {
        // Rounded up to what the clock tells: told to come back after it, the caller must not be too early.
        let millis = u64::try_from((over + 999_999) / 1_000_000).unwrap_or(u64::MAX);
        return Ok(Some(Duration::from_millis(millis)));
    }
    let run = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
        connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(failed)
    };
    let full_at = i64::try_from(full_at).unwrap_or(i64::MAX);
    run(
        "INSERT OR REPLACE INTO buckets (tenant, digest, full_at) VALUES (?1, ?2, ?3)",
        &[&tenant, &digest.as_bytes(), &full_at],
    )?;
    run(
        "DELETE FROM buckets WHERE (tenant, digest) IN \
         (SELECT tenant, digest FROM buckets WHERE full_at <= ?1 ORDER BY full_at LIMIT ?2)",
        &[&i64::try_from(now).unwrap_or(i64::MAX), &EMPTIED_AT_ONCE],
    )?;
    Ok(None)
}
