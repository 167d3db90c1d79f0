//! What is asked of records.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Params, params};
use tower_tool_core::store::{Page, Record, RecordKey, Revision, State, StoreError};
use tower_tool_core::{ApprovalId, Digest, ExecutionId};

use crate::error::failed;
use crate::record::{Found, columns};

type Records = Vec<Arc<Record>>;
type Done<T> = Result<T, StoreError>;

macro_rules! of_key {
    () => {
        "r.tenant = ?1 AND r.actor = ?2 AND r.scope = ?3 AND r.tool = ?4 AND r.digest = ?5"
    };
}

pub(crate) const BY_KEY: &str = concat!("SELECT ", columns!(), " FROM records r WHERE ", of_key!());
pub(crate) const REVISION: &str = concat!("SELECT r.revision FROM records r WHERE ", of_key!());
pub(crate) const CARDS: &str = "SELECT version FROM cards WHERE tenant = ?1";
pub(crate) const BY_ID: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM ids i JOIN records r ON r.id = i.record WHERE i.id = ?1 AND r.tenant = ?2 AND (?3 IS NULL OR r.scope = ?3)"
);
/// When the card was opened, if it is still the one of its record.
pub(crate) const OPENED: &str = "SELECT r.card_at FROM ids i JOIN records r ON r.id = i.record \
     WHERE i.id = ?1 AND r.tenant = ?2 AND r.card = ?1";
pub(crate) const PENDING: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM records r WHERE r.tenant = ?1 AND r.is_pending = 1 AND (r.card_at, r.card) > (?2, ?3)",
    " ORDER BY r.card_at, r.card LIMIT ?4"
);
pub(crate) const IN_SCOPE: &str = "SELECT tool, digest FROM records WHERE tenant = ?1 AND actor = ?2 AND scope = ?3";
pub(crate) const SCAN: &str = concat!("SELECT ", columns!(), " FROM records r WHERE r.id > ?1 ORDER BY r.id LIMIT ?2");

/// What a key is bound to.
pub(crate) fn parts(key: &RecordKey) -> [&[u8]; 5] {
    [key.tenant.as_bytes(), key.actor.as_bytes(), key.scope.as_bytes(), key.tool.as_bytes(), key.digest.as_bytes()]
}

fn one(connection: &Connection, sql: &str, params: impl Params) -> Done<Option<Found>> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params, Found::of).optional())
        .map_err(failed)
}

fn all(connection: &Connection, sql: &str, params: impl Params) -> Done<Vec<Found>> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let rows = statement.query_map(params, Found::of).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

pub(crate) fn number(connection: &Connection, sql: &str, params: impl Params) -> Done<Option<i64>> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params, |row| row.get(0)).optional())
        .map_err(failed)
}

pub(crate) fn by_key(connection: &Connection, key: &RecordKey) -> Done<Option<Found>> {
    one(connection, BY_KEY, parts(key))
}

fn at(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
}

pub(crate) fn revision(connection: &Connection, key: &RecordKey) -> Done<Revision> {
    // Every bit of it is kept, and the sign is none.
    number(connection, REVISION, parts(key)).map(|revision| revision.unwrap_or_default().cast_unsigned())
}

pub(crate) fn cards(connection: &Connection, tenant: &[u8]) -> Done<u64> {
    number(connection, CARDS, [tenant]).map(at)
}

fn by_id(
    connection: &Connection,
    id: &str,
    tenant: &str,
    scope: Option<&str>,
    has: impl FnOnce(&Record) -> bool,
) -> Done<Option<Arc<Record>>> {
    let params = params![id, tenant.as_bytes(), scope.map(str::as_bytes)];
    let Some(found) = one(connection, BY_ID, params)? else { return Ok(None) };
    let record = found.read()?;
    if !has(&record) {
        return Err(found.corrupt("does not have the id that it was found by"));
    }
    Ok(Some(record))
}

pub(crate) fn by_approval(connection: &Connection, tenant: &str, id: ApprovalId) -> Done<Option<Arc<Record>>> {
    by_id(connection, &id.to_string(), tenant, None, |record| record.approval_ids().any(|has| has == id))
}

pub(crate) fn by_execution(
    connection: &Connection,
    tenant: &str,
    scope: &str,
    id: ExecutionId,
) -> Done<Option<Arc<Record>>> {
    by_id(connection, &id.to_string(), tenant, Some(scope), |record| record.execution_ids().any(|has| has == id))
}

pub(crate) fn pending(
    connection: &Connection,
    tenant: &[u8],
    after: Option<ApprovalId>,
    limit: usize,
) -> Done<Records> {
    let mut from = (i64::MIN, String::new());
    if let Some(after) = after.map(|id| id.to_string())
        && let Some(opened) = number(connection, OPENED, params![after, tenant])?
    {
        from = (opened, after);
    }
    let found = all(connection, PENDING, params![tenant, from.0, from.1, most(limit)])?;
    let read = |found: &Found| match found.read()? {
        record if record.state == State::Pending && record.approval.is_some() => Ok(record),
        _ => Err(found.corrupt("is listed as a pending card, and is none")),
    };
    found.iter().map(read).collect()
}

pub(crate) fn in_scope(connection: &Connection, session: &[Arc<str>; 3]) -> Done<Vec<RecordKey>> {
    let [tenant, actor, scope] = session;
    let mut statement = connection.prepare_cached(IN_SCOPE).map_err(failed)?;
    let params = [tenant.as_bytes(), actor.as_bytes(), scope.as_bytes()];
    let rows = statement.query_map(params, |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?))).map_err(failed)?;
    rows.map(|row| {
        let (tool, digest) = row.map_err(failed)?;
        let tool = String::from_utf8(tool).map_err(StoreError::corrupt)?;
        let (tenant, actor, scope) = (Arc::clone(tenant), Arc::clone(actor), Arc::clone(scope));
        Ok(RecordKey { tenant, actor, scope, tool: tool.into(), digest: Digest::from_bytes(digest) })
    })
    .collect()
}

pub(crate) fn scan(connection: &Connection, after: i64, limit: usize) -> Done<Page> {
    let found = all(connection, SCAN, params![after, most(limit)])?;
    let next = found.last().filter(|_| found.len() >= limit).map(|last| last.known.id.to_string());
    let records = found.iter().map(Found::read).collect::<Result<_, _>>()?;
    Ok(Page { records, next })
}

/// SQLite has no greater number for a limit.
fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
