//! A change of a record, and of everything that is known of it besides.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use tower_tool_core::Timestamp;
use tower_tool_core::store::{Limits, Record, RecordKey, Revision, State, StoreError, Swap};

use crate::error::failed;
use crate::record::{COLUMNS, Found, written};

/// How many records that may be forgotten each change forgets, so that no single one pays for all.
const FORGOTTEN_AT_ONCE: usize = 2;

type Done<T = ()> = Result<T, StoreError>;

pub(crate) fn find(connection: &Connection, key: &RecordKey) -> Done<Option<Found>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM records r \
         WHERE r.tenant = ?1 AND r.actor = ?2 AND r.scope = ?3 AND r.tool = ?4 AND r.digest = ?5"
    );
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    statement
        .query_row(
            params![
                key.tenant.as_bytes(),
                key.actor.as_bytes(),
                key.scope.as_bytes(),
                key.tool.as_bytes(),
                key.digest.as_bytes()
            ],
            Found::of,
        )
        .optional()
        .map_err(failed)
}

pub(crate) fn swap(
    connection: &Connection,
    key: &RecordKey,
    expected: Option<Revision>,
    next: Option<Arc<Record>>,
    now: Timestamp,
    limits: &Limits,
) -> Done<Swap> {
    let found = find(connection, key)?;
    let current = found.as_ref().map(|found| found.read_as(key)).transpose()?;
    if current.as_ref().map(|record| record.revision) != expected {
        return Ok(Swap::Lost(current));
    }
    let table = Table { connection };
    let Some(next) = next else {
        let (Some(found), Some(current)) = (found, current) else {
            return Err(StoreError::corrupt("an absent record cannot be removed"));
        };
        table.touch_cards(&[Some(&current)])?;
        table.remove(&found, key)?;
        return Ok(Swap::Won(current));
    };
    if found.is_none() {
        table.make_room(now, limits)?;
    }
    let next = match next.body() {
        Some(body) if body.bytes() > limits.result_bytes() => Arc::new(next.without_body()),
        _ => next,
    };
    table.touch_cards(&[current.as_deref(), Some(&next)])?;
    if let Some(found) = &found {
        table.forget_body(found, key)?;
    }
    let id = table.write(found.as_ref(), &next)?;
    table.write_ids(id, &next, found.is_none())?;
    if let Some(body) = next.body() {
        table.add_body(id, key, body.bytes())?;
    }
    for _ in 0..FORGOTTEN_AT_ONCE {
        if !table.forget_one(now)? {
            break;
        }
    }
    table.drop_surplus(key, limits)?;
    Ok(Swap::Won(next))
}

struct Table<'a> {
    connection: &'a Connection,
}

impl Table<'_> {
    fn run(&self, sql: &str, params: impl rusqlite::Params) -> Done<usize> {
        self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(failed)
    }

    fn number(&self, sql: &str, params: impl rusqlite::Params) -> Done<Option<i64>> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        statement.query_row(params, |row| row.get(0)).optional().map_err(failed)
    }

    fn write(&self, found: Option<&Found>, record: &Record) -> Done<i64> {
        let (json, body) = written(record)?;
        let card = record.approval.as_ref();
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let bytes = record.body().map_or(0, |body| number(body.bytes()));
        let key = &record.key;
        if let Some(found) = found {
            self.run(
                "UPDATE records SET revision = ?2, forget_at = ?3, card = ?4, card_at = ?5, is_pending = ?6, record = ?7, \
                 body = ?8, body_bytes = ?9 WHERE id = ?1",
                params![
                    found.id,
                    number(record.revision),
                    record.forget_at().map(|at| number(at.as_millis())),
                    card.map(|card| card.id.to_string()),
                    card.map(|card| number(card.created_at.as_millis())),
                    card.is_some() && record.state == State::Pending,
                    json,
                    body,
                    bytes,
                ],
            )?;
            return Ok(found.id);
        }
        self.run(
            "INSERT INTO records (tenant, actor, scope, tool, digest, revision, forget_at, card, card_at, is_pending, \
             record, body, body_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                key.tenant.as_bytes(),
                key.actor.as_bytes(),
                key.scope.as_bytes(),
                key.tool.as_bytes(),
                key.digest.as_bytes(),
                number(record.revision),
                record.forget_at().map(|at| number(at.as_millis())),
                card.map(|card| card.id.to_string()),
                card.map(|card| number(card.created_at.as_millis())),
                card.is_some() && record.state == State::Pending,
                json,
                body,
                bytes,
            ],
        )?;
        let id = self.connection.last_insert_rowid();
        self.run("UPDATE totals SET records = records + 1", [])?;
        Ok(id)
    }

    fn write_ids(&self, id: i64, record: &Record, is_new: bool) -> Done {
        if !is_new {
            self.run("DELETE FROM ids WHERE record = ?1", [id])?;
        }
        let approvals = record.approval_ids().map(|id| id.to_string());
        for text in approvals.chain(record.execution_ids().map(|id| id.to_string())) {
            self.run("INSERT OR REPLACE INTO ids (id, record) VALUES (?1, ?2)", params![text, id])?;
        }
        Ok(())
    }

    fn touch_cards(&self, records: &[Option<&Record>]) -> Done {
        if let Some(record) = records.iter().flatten().find(|record| record.approval.is_some()) {
            self.run(
                "INSERT INTO cards (tenant, version) VALUES (?1, 1) ON CONFLICT DO UPDATE SET version = version + 1",
                [record.key.tenant.as_bytes()],
            )?;
        }
        Ok(())
    }

    fn add_body(&self, id: i64, key: &RecordKey, bytes: u64) -> Done {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.run(
            "INSERT INTO bodies (record, tenant, actor, scope) VALUES (?1, ?2, ?3, ?4)",
            params![id, key.tenant.as_bytes(), key.actor.as_bytes(), key.scope.as_bytes()],
        )?;
        self.run(
            "INSERT INTO sessions (tenant, actor, scope, bodies, bytes) VALUES (?1, ?2, ?3, 1, ?4) \
             ON CONFLICT DO UPDATE SET bodies = bodies + 1, bytes = bytes + excluded.bytes",
            params![key.tenant.as_bytes(), key.actor.as_bytes(), key.scope.as_bytes(), bytes],
        )?;
        self.run("UPDATE totals SET bodies = bodies + 1, bytes = bytes + ?1", [bytes])?;
        Ok(())
    }

    /// What is counted of a result, before it goes or another takes its place.
    fn forget_body(&self, found: &Found, key: &RecordKey) -> Done {
        if !found.has_body() {
            return Ok(());
        }
        let session = (key.tenant.as_bytes(), key.actor.as_bytes(), key.scope.as_bytes());
        self.run("DELETE FROM bodies WHERE record = ?1", [found.id])?;
        self.run(
            "UPDATE sessions SET bodies = bodies - 1, bytes = bytes - ?4 WHERE tenant = ?1 AND actor = ?2 AND scope = ?3",
            params![session.0, session.1, session.2, found.body_bytes],
        )?;
        self.run(
            "DELETE FROM sessions WHERE tenant = ?1 AND actor = ?2 AND scope = ?3 AND bodies = 0",
            params![session.0, session.1, session.2],
        )?;
        self.run("UPDATE totals SET bodies = bodies - 1, bytes = bytes - ?1", [found.body_bytes])?;
        Ok(())
    }

    fn remove(&self, found: &Found, key: &RecordKey) -> Done {
        self.forget_body(found, key)?;
        self.run("DELETE FROM ids WHERE record = ?1", [found.id])?;
        self.run("DELETE FROM records WHERE id = ?1", [found.id])?;
        self.run("UPDATE totals SET records = records - 1", [])?;
        Ok(())
    }

    fn make_room(&self, now: Timestamp, limits: &Limits) -> Done {
        let is_full = || -> Done<bool> {
            let records = self.number("SELECT records FROM totals", [])?.unwrap_or_default();
            Ok(u64::try_from(records).unwrap_or_default() >= limits.records())
        };
        while is_full()? {
            if !self.forget_one(now)? {
                return Err(StoreError::full());
            }
        }
        Ok(())
    }

    /// Forgets the record that may be forgotten since longest. `false` if there is none.
    fn forget_one(&self, now: Timestamp) -> Done<bool> {
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT {COLUMNS} FROM records r WHERE r.forget_at IS NOT NULL AND r.forget_at <= ?1 ORDER BY r.forget_at LIMIT 1"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let Some(found) = statement.query_row([now], Found::of).optional().map_err(failed)? else {
            return Ok(false);
        };
        let record = found.read()?;
        self.touch_cards(&[Some(&record)])?;
        self.remove(&found, &record.key)?;
        Ok(true)
    }

    fn drop_surplus(&self, key: &RecordKey, limits: &Limits) -> Done {
        let session = (key.tenant.as_bytes(), key.actor.as_bytes(), key.scope.as_bytes());
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        loop {
            let of_session: (i64, i64) = self
                .connection
                .prepare_cached("SELECT bodies, bytes FROM sessions WHERE tenant = ?1 AND actor = ?2 AND scope = ?3")
                .and_then(|mut statement| {
                    statement
                        .query_row(params![session.0, session.1, session.2], |row| Ok((row.get(0)?, row.get(1)?)))
                        .optional()
                })
                .map_err(failed)?
                .unwrap_or_default();
            let oldest = if limits.per_scope().is_exceeded_by(unsigned(of_session.0), unsigned(of_session.1)) {
                self.number(
                    "SELECT record FROM bodies WHERE tenant = ?1 AND actor = ?2 AND scope = ?3 ORDER BY seq LIMIT 1",
                    params![session.0, session.1, session.2],
                )?
            } else {
                let in_all: (i64, i64) = self
                    .connection
                    .prepare_cached("SELECT bodies, bytes FROM totals")
                    .and_then(|mut statement| statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))))
                    .map_err(failed)?;
                if !limits.in_all().is_exceeded_by(unsigned(in_all.0), unsigned(in_all.1)) {
                    return Ok(());
                }
                self.number("SELECT record FROM bodies ORDER BY seq LIMIT 1", [])?
            };
            let Some(oldest) = oldest else { return Ok(()) };
            self.drop_body(oldest)?;
        }
    }

    /// The same revision: what is dropped is room, not knowledge.
    fn drop_body(&self, id: i64) -> Done {
        let sql = format!("SELECT {COLUMNS} FROM records r WHERE r.id = ?1");
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        let found = statement.query_row([id], Found::of).map_err(failed)?;
        let key = found.read()?.key.clone();
        self.forget_body(&found, &key)?;
        self.run("UPDATE records SET body = NULL, body_bytes = 0 WHERE id = ?1", [id])?;
        Ok(())
    }
}
