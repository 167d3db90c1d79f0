//! Records as rows.

use std::sync::Arc;

use rusqlite::Row;
use serde_json::Value;
use tower_tool_core::store::{Body, Record, RecordKey, StoreError};

/// The columns that [`Found::of`] reads.
pub(crate) const COLUMNS: &str = "r.id, r.record, r.body, r.body_bytes";

/// A row, not understood yet.
pub(crate) struct Found {
    pub(crate) id: i64,
    record: Vec<u8>,
    body: Option<Vec<u8>>,
    pub(crate) body_bytes: i64,
}

impl Found {
    pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, record: row.get(1)?, body: row.get(2)?, body_bytes: row.get(3)? })
    }

    pub(crate) fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// The record, if it is whole.
    pub(crate) fn read(&self) -> Result<Arc<Record>, StoreError> {
        let corrupt =
            |why: &dyn std::fmt::Display| StoreError::corrupt(format!("record {} cannot be read: {why}", self.id));
        let record: Record = serde_json::from_slice(&self.record).map_err(|error| corrupt(&error))?;
        if !record.is_readable() {
            return Err(corrupt(&format!("it has version {}, which is not known here", record.version)));
        }
        Ok(Arc::new(match &self.body {
            Some(body) => {
                let value: Value = serde_json::from_slice(body).map_err(|error| corrupt(&error))?;
                record.with_body(Body::new(Arc::new(value)))
            }
            None => record,
        }))
    }

    /// The record, if it is whole and belongs to this key.
    pub(crate) fn read_as(&self, key: &RecordKey) -> Result<Arc<Record>, StoreError> {
        let record = self.read()?;
        if record.key == *key {
            Ok(record)
        } else {
            Err(StoreError::corrupt(format!("record {} belongs to another key", self.id)))
        }
    }
}

/// A record as it is written: without its result, and the result.
pub(crate) fn written(record: &Record) -> Result<(Vec<u8>, Option<Vec<u8>>), StoreError> {
    let body = record.body().map(|body| serde_json::to_vec(&**body.value())).transpose();
    let record = match record.body() {
        Some(_) => serde_json::to_vec(&record.without_body()),
        None => serde_json::to_vec(record),
    };
    // A record is made of what JSON can say.
    Ok((record.map_err(StoreError::corrupt)?, body.map_err(StoreError::corrupt)?))
}
