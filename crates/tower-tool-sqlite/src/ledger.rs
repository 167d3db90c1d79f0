use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use tower_tool_core::store::{Io, LedgerStore, Page, Record, RecordKey, Revision, StoreError, Swap, Topic};
use tower_tool_core::{ApprovalId, Digest, ExecutionId, Timestamp};

use crate::error::failed;
use crate::record::{COLUMNS, Found};
use crate::store::SqliteStore;
use crate::swap::{find, swap};

impl LedgerStore for SqliteStore {
    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let key = key.clone();
        Io::later(
            self.inner.read(move |connection| find(connection, &key)?.map(|found| found.read_as(&key)).transpose()),
        )
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        let (key, limits, clock) = (key.clone(), self.inner.limits, Arc::clone(&self.inner.clock));
        Io::later(self.inner.writer.ask(move |connection| swap(connection, &key, expected, next, clock.now(), &limits)))
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        let inner = &self.inner;
        Io::later(async move {
            match topic {
                Topic::Record(key) => {
                    let at = || {
                        let key = key.clone();
                        inner.read(move |connection| revision(connection, &key))
                    };
                    inner.watch.until(&inner.reader, since, at).await
                }
                Topic::Cards(tenant) => {
                    let at = || {
                        let tenant = tenant.as_bytes().to_vec();
                        inner.read(move |connection| {
                            number(connection, "SELECT version FROM cards WHERE tenant = ?1", params![tenant])
                        })
                    };
                    inner.watch.until(&inner.reader, since, at).await
                }
                _ => Err(StoreError::unavailable("there is no such topic here")),
            }
        })
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let (tenant, id) = (tenant.as_bytes().to_vec(), id.to_string());
        Io::later(self.inner.read(move |connection| by_id(connection, &id, &tenant, None)))
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        let (tenant, scope, id) = (tenant.as_bytes().to_vec(), scope.as_bytes().to_vec(), id.to_string());
        Io::later(self.inner.read(move |connection| by_id(connection, &id, &tenant, Some(&scope))))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        let (tenant, after) = (tenant.as_bytes().to_vec(), after.map(|id| id.to_string()));
        Io::later(self.inner.read(move |connection| pending(connection, &tenant, after.as_deref(), limit)))
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        let [tenant, actor, scope] = [tenant, actor, scope].map(Arc::<str>::from);
        Io::later(self.inner.read(move |connection| in_scope(connection, &tenant, &actor, &scope)))
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        let after = match after.map(str::parse::<i64>).transpose() {
            Ok(after) => after.unwrap_or(i64::MIN),
            Err(error) => return Io::now(Err(StoreError::unavailable(error))),
        };
        Io::later(self.inner.read(move |connection| scan(connection, after, limit)))
    }
}

/// SQLite has no greater number for a limit.
fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn number(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<u64, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let number: Option<i64> = statement.query_row(params, |row| row.get(0)).optional().map_err(failed)?;
    Ok(number.and_then(|number| u64::try_from(number).ok()).unwrap_or_default())
}

fn revision(connection: &Connection, key: &RecordKey) -> Result<Revision, StoreError> {
    number(
        connection,
        "SELECT revision FROM records WHERE tenant = ?1 AND actor = ?2 AND scope = ?3 AND tool = ?4 AND digest = ?5",
        params![
            key.tenant.as_bytes(),
            key.actor.as_bytes(),
            key.scope.as_bytes(),
            key.tool.as_bytes(),
            key.digest.as_bytes()
        ],
    )
}

fn by_id(
    connection: &Connection,
    id: &str,
    tenant: &[u8],
    scope: Option<&[u8]>,
) -> Result<Option<Arc<Record>>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM ids i JOIN records r ON r.id = i.record \
         WHERE i.id = ?1 AND r.tenant = ?2 AND (?3 IS NULL OR r.scope = ?3)"
    );
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let found = statement.query_row(params![id, tenant, scope], Found::of).optional().map_err(failed)?;
    found.map(|found| found.read()).transpose()
}

fn all(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<Found>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let rows = statement.query_map(params, Found::of).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

fn pending(
    connection: &Connection,
    tenant: &[u8],
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Arc<Record>>, StoreError> {
    let opened: Option<i64> = match after {
        Some(id) => connection
            .prepare_cached(
                "SELECT r.card_at FROM ids i JOIN records r ON r.id = i.record WHERE i.id = ?1 AND r.tenant = ?2 AND r.card = ?1",
            )
            .and_then(|mut statement| statement.query_row(params![id, tenant], |row| row.get(0)).optional())
            .map_err(failed)?,
        None => None,
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM records r \
         WHERE r.tenant = ?1 AND r.is_pending = 1 AND (r.card_at, r.card) > (?2, ?3) ORDER BY r.card_at, r.card LIMIT ?4"
    );
    let after = after.filter(|_| opened.is_some()).unwrap_or_default();
    let found = all(connection, &sql, params![tenant, opened.unwrap_or(i64::MIN), after, most(limit)])?;
    found.iter().map(Found::read).collect()
}

fn in_scope(
    connection: &Connection,
    tenant: &Arc<str>,
    actor: &Arc<str>,
    scope: &Arc<str>,
) -> Result<Vec<RecordKey>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT tool, digest FROM records WHERE tenant = ?1 AND actor = ?2 AND scope = ?3")
        .map_err(failed)?;
    let rows = statement
        .query_map(params![tenant.as_bytes(), actor.as_bytes(), scope.as_bytes()], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, [u8; 32]>(1)?))
        })
        .map_err(failed)?;
    rows.map(|row| {
        let (tool, digest) = row.map_err(failed)?;
        let tool = String::from_utf8(tool).map_err(StoreError::corrupt)?;
        let (tenant, actor, scope) = (Arc::clone(tenant), Arc::clone(actor), Arc::clone(scope));
        Ok(RecordKey { tenant, actor, scope, tool: tool.into(), digest: Digest::from_bytes(digest) })
    })
    .collect()
}

fn scan(connection: &Connection, after: i64, limit: usize) -> Result<Page, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM records r WHERE r.id > ?1 ORDER BY r.id LIMIT ?2");
    let found = all(connection, &sql, params![after, most(limit)])?;
    let next = found.last().filter(|_| found.len() >= limit).map(|last| last.id.to_string());
    let records = found.iter().map(Found::read).collect::<Result<_, _>>()?;
    Ok(Page { records, next })
}
