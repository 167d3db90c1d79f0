//! What goes when there is too much: records that may be forgotten, and the oldest results.
//!
//! No record is understood for it, so one that is damaged stands in nobody's way.

use rusqlite::params;
use tower_tool_core::Timestamp;
use tower_tool_core::store::{Cap, Limits, RecordKey, StoreError};

use crate::find;
use crate::record::{Known, columns};
use crate::table::{Done, Table, signed};

pub(crate) const FORGETTABLE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM records r WHERE r.forget_at IS NOT NULL AND r.forget_at <= ?1 ORDER BY r.forget_at LIMIT 1"
);
pub(crate) const RECORDS: &str = "SELECT records FROM totals WHERE one = 1";
pub(crate) const OF_SESSION: &str =
    "SELECT bodies, bytes FROM sessions WHERE tenant = ?1 AND actor = ?2 AND scope = ?3";
pub(crate) const OF_ALL: &str = "SELECT bodies, bytes FROM totals WHERE one = 1";
pub(crate) const OLDEST_OF_SESSION: &str =
    "SELECT record FROM bodies WHERE tenant = ?1 AND actor = ?2 AND scope = ?3 ORDER BY seq LIMIT 1";
pub(crate) const OLDEST_OF_ALL: &str = "SELECT record FROM bodies WHERE seq = (SELECT min(seq) FROM bodies)";
pub(crate) const BY_ROW: &str = concat!("SELECT ", columns!(), " FROM records r WHERE r.id = ?1");
pub(crate) const DROP: &str = "UPDATE records SET body = NULL, body_bytes = NULL WHERE id = ?1";

impl Table<'_> {
    /// Forgets until there is room for one more.
    pub(crate) fn make_room(&self, now: Timestamp, limits: &Limits) -> Done {
        loop {
            let records = find::number(self.connection, RECORDS, [])?.unwrap_or_default();
            if records < signed(limits.records()) {
                return Ok(());
            }
            if !self.forget_one(now)? {
                return Err(StoreError::full());
            }
        }
    }

    /// Forgets the record that may be forgotten since longest. `false` if there is none.
    pub(crate) fn forget_one(&self, now: Timestamp) -> Done<bool> {
        let Some(known) = self.row(FORGETTABLE, [signed(now.as_millis())], Known::of)? else { return Ok(false) };
        self.remove(&known)?;
        Ok(true)
    }

    /// Drops the oldest results, of the session and of all, until there are no more than there may be.
    pub(crate) fn drop_surplus(&self, key: &RecordKey, limits: &Limits) -> Done {
        let [tenant, actor, scope, ..] = find::parts(key);
        let session = params![tenant, actor, scope];
        while self.is_exceeded(limits.per_scope(), OF_SESSION, session)? {
            let Some(oldest) = find::number(self.connection, OLDEST_OF_SESSION, session)? else { break };
            self.drop_body(oldest)?;
        }
        while self.is_exceeded(limits.in_all(), OF_ALL, params![])? {
            let Some(oldest) = find::number(self.connection, OLDEST_OF_ALL, [])? else { break };
            self.drop_body(oldest)?;
        }
        Ok(())
    }

    fn is_exceeded(&self, cap: Cap, sql: &str, of: &[&dyn rusqlite::ToSql]) -> Done<bool> {
        let counted: Option<(i64, i64)> = self.row(sql, of, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let [count, bytes] = counted
            .map_or([0; 2], |(count, bytes)| [count, bytes].map(|number| u64::try_from(number).unwrap_or_default()));
        Ok(cap.is_exceeded_by(count, bytes))
    }

    /// The same revision: what is dropped is room, not knowledge.
    fn drop_body(&self, id: i64) -> Done {
        let Some(known) = self.row(BY_ROW, [id], Known::of)? else {
            return Err(StoreError::corrupt(format!("record {id} has a result, and is not there")));
        };
        self.forget_body(&known)?;
        self.run(DROP, [id])?;
        Ok(())
    }
}
