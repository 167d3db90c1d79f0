//! The rows of a record: its own, those that it is found by, and what is counted of it.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params, params_from_iter};
use tower_tool_core::Timestamp;
use tower_tool_core::store::{Record, RecordKey, State, StoreError};

use crate::error::failed;
use crate::find;
use crate::record::{Known, Written};
use crate::slot::Slot;
use crate::worker::Touched;

pub(crate) type Done<T = ()> = Result<T, StoreError>;

pub(crate) const INSERT: &str = "INSERT INTO records (revision, forget_at, card, card_at, is_pending, body_bytes, record, body, \
     tenant, actor, scope, tool, digest) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
pub(crate) const UPDATE: &str = "UPDATE records SET revision = ?1, forget_at = ?2, card = ?3, card_at = ?4, \
     is_pending = ?5, body_bytes = ?6, record = ?7, body = ?8 WHERE id = ?9";
pub(crate) const DELETE: &str = "DELETE FROM records WHERE id = ?1";
pub(crate) const DELETE_IDS: &str = "DELETE FROM ids WHERE record = ?1";
pub(crate) const DELETE_BODY: &str = "DELETE FROM bodies WHERE record = ?1";

/// The tables, within a transaction.
pub(crate) struct Table<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) touched: &'a Touched,
}

impl Table<'_> {
    pub(crate) fn run(&self, sql: &str, params: impl Params) -> Done<usize> {
        self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(failed)
    }

    pub(crate) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Done<Option<T>> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read).optional())
            .map_err(failed)
    }

    pub(crate) fn insert(&self, record: &Record, written: &Written) -> Done<i64> {
        let values = values(record, written).into_iter();
        let key = find::parts(&record.key).into_iter().map(|part| Value::Blob(part.to_vec()));
        self.run(INSERT, params_from_iter(values.chain(key)))?;
        let id = self.connection.last_insert_rowid();
        self.run("UPDATE totals SET records = records + 1 WHERE one = 1", [])?;
        self.write_ids(id, record)?;
        self.touch(record.key.digest.as_bytes(), record.approval.is_some().then_some(record.key.tenant.as_bytes()))?;
        Ok(id)
    }

    /// Puts another record into the row. Its result is counted no more by then.
    pub(crate) fn replace(&self, known: &Known, record: &Record, written: &Written) -> Done<i64> {
        let values = values(record, written).into_iter();
        self.run(UPDATE, params_from_iter(values.chain([Value::Integer(known.id)])))?;
        self.run(DELETE_IDS, [known.id])?;
        self.write_ids(known.id, record)?;
        let has_card = known.has_card || record.approval.is_some();
        self.touch(&known.digest, has_card.then_some(&*known.tenant))?;
        Ok(known.id)
    }

    pub(crate) fn remove(&self, known: &Known) -> Done {
        self.forget_body(known)?;
        self.run(DELETE_IDS, [known.id])?;
        self.run(DELETE, [known.id])?;
        self.run("UPDATE totals SET records = records - 1 WHERE one = 1", [])?;
        self.touch(&known.digest, known.has_card.then_some(&*known.tenant))
    }

    fn write_ids(&self, id: i64, record: &Record) -> Done {
        let approvals = record.approval_ids().map(|id| id.to_string());
        for text in approvals.chain(record.execution_ids().map(|id| id.to_string())) {
            self.run("INSERT OR REPLACE INTO ids (id, record) VALUES (?1, ?2)", params![text, id])?;
        }
        Ok(())
    }

    /// Tells those who wait, once this is committed. `cards` is whose cards have moved, if any have.
    fn touch(&self, digest: &[u8; 32], cards: Option<&[u8]>) -> Done {
        self.touched.add(Slot::of_record(&tower_tool_core::Digest::from_bytes(*digest)));
        if let Some(tenant) = cards {
            self.run(
                "INSERT INTO cards (tenant, version) VALUES (?1, 1) ON CONFLICT DO UPDATE SET version = version + 1",
                [tenant],
            )?;
            self.touched.add(Slot::of_cards(tenant));
        }
        Ok(())
    }

    pub(crate) fn add_body(&self, id: i64, key: &RecordKey, bytes: u64) -> Done {
        let [tenant, actor, scope, ..] = find::parts(key);
        let bytes = signed(bytes);
        self.run(
            "INSERT INTO bodies (record, tenant, actor, scope) VALUES (?1, ?2, ?3, ?4)",
            params![id, tenant, actor, scope],
        )?;
        self.run(
            "INSERT INTO sessions (tenant, actor, scope, bodies, bytes) VALUES (?1, ?2, ?3, 1, ?4) \
             ON CONFLICT DO UPDATE SET bodies = bodies + 1, bytes = bytes + excluded.bytes",
            params![tenant, actor, scope, bytes],
        )?;
        self.run("UPDATE totals SET bodies = bodies + 1, bytes = bytes + ?1 WHERE one = 1", [bytes])?;
        Ok(())
    }

    /// What is counted of a result, before it goes or another takes its place.
    pub(crate) fn forget_body(&self, known: &Known) -> Done {
        let Some(bytes) = known.body_bytes else { return Ok(()) };
        let Known { id, tenant, actor, scope, .. } = known;
        self.run(DELETE_BODY, [id])?;
        self.run(
            "UPDATE sessions SET bodies = bodies - 1, bytes = bytes - ?4 WHERE tenant = ?1 AND actor = ?2 AND scope = ?3",
            params![tenant, actor, scope, bytes],
        )?;
        self.run(
            "DELETE FROM sessions WHERE tenant = ?1 AND actor = ?2 AND scope = ?3 AND bodies = 0",
            params![tenant, actor, scope],
        )?;
        self.run("UPDATE totals SET bodies = bodies - 1, bytes = bytes - ?1 WHERE one = 1", [bytes])?;
        Ok(())
    }
}

/// What stands first in [`INSERT`] and in [`UPDATE`].
fn values(record: &Record, written: &Written) -> [Value; 8] {
    let card = record.approval.as_ref();
    let time = |time: Timestamp| signed(time.as_millis());
    [
        record.revision.cast_signed().into(),
        record.forget_at().map(time).into(),
        card.map(|card| card.id.to_string()).into(),
        card.map(|card| time(card.created_at)).into(),
        (card.is_some() && record.state == State::Pending).into(),
        record.body().map(|body| signed(body.bytes())).into(),
        written.record.clone().into(),
        written.body.clone().into(),
    ]
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
