//! A change of a record, and of everything that is known of it besides.

use std::sync::Arc;

use rusqlite::Connection;
use tower_tool_core::Timestamp;
use tower_tool_core::store::{Limits, Record, RecordKey, Revision, StoreError, Swap};

use crate::find;
use crate::record::{Found, Written};
use crate::table::Table;
use crate::worker::Touched;

/// How many records that may be forgotten each change forgets, so that no single one pays for all.
const FORGOTTEN_AT_ONCE: usize = 2;

pub(crate) fn swap(
    connection: &Connection,
    touched: &Touched,
    key: &RecordKey,
    expected: Option<Revision>,
    next: Option<Arc<Record>>,
    now: Timestamp,
    limits: &Limits,
) -> Result<Swap, StoreError> {
    let found = find::by_key(connection, key)?;
    let current = found.as_ref().map(Found::read).transpose()?;
    if current.as_ref().map(|record| record.revision) != expected {
        return Ok(Swap::Lost(current));
    }
    let table = Table { connection, touched };
    let Some(next) = next else {
        let (Some(found), Some(current)) = (found, current) else {
            return Err(StoreError::corrupt("an absent record cannot be removed"));
        };
        table.remove(&found.known)?;
        return Ok(Swap::Won(current));
    };
    let (next, written) = keep(next, limits)?;
    let id = match &found {
        Some(found) => {
            table.forget_body(&found.known)?;
            table.replace(&found.known, &next, &written)?
        }
        None => {
            table.make_room(now, limits)?;
            table.insert(&next, &written)?
        }
    };
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

/// What is kept of a record: all, unless the result is too great or could not be read again.
fn keep(next: Arc<Record>, limits: &Limits) -> Result<(Arc<Record>, Written), StoreError> {
    let is_too_great = next.body().is_some_and(|body| body.bytes() > limits.result_bytes());
    if !is_too_great && let Some(written) = Written::of(&next)? {
        return Ok((next, written));
    }
    let next = Arc::new(next.without_body());
    match Written::of(&next)? {
        Some(written) => Ok((next, written)),
        None => Err(StoreError::corrupt("a record without a result has one")),
    }
}
