//! Records as rows.

use std::sync::Arc;

use rusqlite::Row;
use serde_json::Value;
use tower_tool_core::store::{Body, Record, StoreError};

/// The columns that [`Found::of`] reads, of `records r`.
macro_rules! columns {
    () => {
        "r.id, r.tenant, r.actor, r.scope, r.tool, r.digest, r.revision, r.card IS NOT NULL, r.body_bytes, r.record, r.body"
    };
}
pub(crate) use columns;

/// How deep JSON may nest to be read again.
const MAX_DEPTH: usize = 127;

/// What is known of a record without understanding it: enough to take it away.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: i64,
    pub(crate) tenant: Vec<u8>,
    pub(crate) actor: Vec<u8>,
    pub(crate) scope: Vec<u8>,
    tool: Vec<u8>,
    pub(crate) digest: [u8; 32],
    revision: i64,
    pub(crate) has_card: bool,
    pub(crate) body_bytes: Option<i64>,
}

impl Known {
    pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            tenant: row.get(1)?,
            actor: row.get(2)?,
            scope: row.get(3)?,
            tool: row.get(4)?,
            digest: row.get(5)?,
            revision: row.get(6)?,
            has_card: row.get(7)?,
            body_bytes: row.get(8)?,
        })
    }
}

/// A row, not understood yet.
pub(crate) struct Found {
    pub(crate) known: Known,
    record: Vec<u8>,
    body: Option<Vec<u8>>,
}

impl Found {
    pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { known: Known::of(row)?, record: row.get(9)?, body: row.get(10)? })
    }

    /// The record, if it is whole and the one that belongs here.
    pub(crate) fn read(&self) -> Result<Arc<Record>, StoreError> {
        let record: Record = serde_json::from_slice(&self.record).map_err(|error| self.unreadable(&error))?;
        if !record.is_readable() {
            return Err(self.corrupt(&format!("has version {}, which is not known here", record.version)));
        }
        let Known { tenant, actor, scope, tool, digest, revision, .. } = &self.known;
        let key = &record.key;
        let names = [(&key.tenant, tenant), (&key.actor, actor), (&key.scope, scope), (&key.tool, tool)];
        if names.iter().any(|(name, column)| name.as_bytes() != &***column) || key.digest.as_bytes() != digest {
            return Err(self.corrupt("belongs to another key"));
        }
        if revision.cast_unsigned() != record.revision {
            return Err(self.corrupt("has another revision than its row"));
        }
        let Some(body) = &self.body else { return Ok(Arc::new(record)) };
        if self.known.body_bytes != i64::try_from(body.len()).ok() {
            return Err(self.corrupt("has a result of another length"));
        }
        let value: Value = serde_json::from_slice(body).map_err(|error| self.unreadable(&error))?;
        Ok(Arc::new(record.with_body(Body::new(Arc::new(value)))))
    }

    /// Where, and not what: the text of the error may hold what the record holds.
    fn unreadable(&self, error: &serde_json::Error) -> StoreError {
        self.corrupt(&format!("is not what was written, at byte {}", error.column()))
    }

    /// Names the record by its row and its tool.
    pub(crate) fn corrupt(&self, why: &str) -> StoreError {
        let Known { id, tool, .. } = &self.known;
        StoreError::corrupt(format!("record {id}, of the tool `{}`, {why}", String::from_utf8_lossy(tool)))
    }
}

/// A record as it is written: without its result, and the result.
pub(crate) struct Written {
    pub(crate) record: Vec<u8>,
    pub(crate) body: Option<Vec<u8>>,
}

impl Written {
    /// `None` for a result that could not be read again.
    pub(crate) fn of(record: &Record) -> Result<Option<Self>, StoreError> {
        let body = record.body().map(|body| serde_json::to_vec(&**body.value()));
        let body = body.transpose().map_err(StoreError::corrupt)?;
        if body.as_deref().is_some_and(is_too_deep) {
            return Ok(None);
        }
        let record = match &body {
            Some(_) => serde_json::to_vec(&record.without_body()),
            None => serde_json::to_vec(record),
        };
        let record = record.map_err(StoreError::corrupt)?;
        if is_too_deep(&record) {
            return Err(StoreError::corrupt("the record nests too deep to be read again, and was not written"));
        }
        Ok(Some(Self { record, body }))
    }
}

/// Whether JSON nests deeper than it can be read.
fn is_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_too_deep_can_be_read_again() {
        let nested = |depth: usize| format!("{}{}", r#"{"[{\"":["#.repeat(depth / 2), "]}".repeat(depth / 2));
        for (depth, too_deep) in [(2, false), (126, false), (128, true), (1_000, true)] {
            let json = nested(depth);
            assert_eq!(is_too_deep(json.as_bytes()), too_deep, "{depth}");
            assert_eq!(serde_json::from_str::<Value>(&json).is_err(), too_deep, "{depth}");
        }
        let (deepest, too_deep) = ("[".repeat(127) + &"]".repeat(127), "[".repeat(128) + &"]".repeat(128));
        assert!(!is_too_deep(deepest.as_bytes()) && serde_json::from_str::<Value>(&deepest).is_ok());
        assert!(is_too_deep(too_deep.as_bytes()) && serde_json::from_str::<Value>(&too_deep).is_err());
        for flat in [json!("[".repeat(500)), json!("\\\"[".repeat(500)), json!(vec![json!([]); 500])] {
            assert!(!is_too_deep(flat.to_string().as_bytes()), "{flat}");
        }
    }
}
