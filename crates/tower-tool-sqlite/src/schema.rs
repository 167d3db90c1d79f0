//! The tables, and how they came to be version by version.

use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use crate::error::OpenError;

/// `tool`, in the place where SQLite keeps whose file it is.
const APPLICATION_ID: i64 = 0x746f_6f6c;

/// What makes each version of the one before it.
const MIGRATIONS: &[&str] = &[VERSION_1];

const VERSION_1: &str = "
    -- A record without its result, which is apart so that it can go by itself. Names are bytes: nothing folds or cuts them.
    CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        tenant BLOB NOT NULL,
        actor BLOB NOT NULL,
        scope BLOB NOT NULL,
        tool BLOB NOT NULL,
        digest BLOB NOT NULL,
        revision INTEGER NOT NULL,
        forget_at INTEGER,
        card TEXT,
        card_at INTEGER,
        is_pending INTEGER NOT NULL,
        record BLOB NOT NULL,
        body BLOB,
        body_bytes INTEGER NOT NULL,
        UNIQUE (tenant, actor, scope, tool, digest)
    ) STRICT;
    CREATE INDEX to_forget ON records (forget_at) WHERE forget_at IS NOT NULL;
    CREATE INDEX pending ON records (tenant, card_at, card) WHERE is_pending = 1;
    -- The order in which results came.
    CREATE TABLE bodies (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        record INTEGER NOT NULL UNIQUE,
        tenant BLOB NOT NULL,
        actor BLOB NOT NULL,
        scope BLOB NOT NULL
    ) STRICT;
    CREATE INDEX bodies_of_session ON bodies (tenant, actor, scope, seq);
    CREATE TABLE sessions (
        tenant BLOB NOT NULL,
        actor BLOB NOT NULL,
        scope BLOB NOT NULL,
        bodies INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (tenant, actor, scope)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE totals (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        records INTEGER NOT NULL,
        bodies INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    ) STRICT;
    INSERT INTO totals VALUES (1, 0, 0, 0);
    -- By approval and by execution: what an id belongs to.
    CREATE TABLE ids (id TEXT PRIMARY KEY, record INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE INDEX ids_of_record ON ids (record);
    -- Grows with every change of a record that has a card.
    CREATE TABLE cards (tenant BLOB PRIMARY KEY, version INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE buckets (
        tenant BLOB NOT NULL,
        digest BLOB NOT NULL,
        full_at INTEGER NOT NULL,
        PRIMARY KEY (tenant, digest)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX buckets_full ON buckets (full_at);
    CREATE TABLE clock (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        start BLOB NOT NULL,
        started_at INTEGER NOT NULL,
        latest INTEGER NOT NULL
    ) STRICT;
";

/// Brings the file to the latest version, within a transaction of the caller.
pub(crate) fn migrate(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |error| sqlite(path, error);
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(sqlite);
    let (whose, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sqlite)?;
    let is_new = whose == 0 && version == 0 && tables == 0;
    if !is_new && whose != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if version > known {
        return Err(OpenError::Newer { path: path.to_owned(), found: version, known });
    }
    let done = usize::try_from(version).unwrap_or_default();
    for migration in MIGRATIONS.iter().skip(done) {
        connection.execute_batch(migration).map_err(sqlite)?;
    }
    if version < known {
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        connection.pragma_update(None, "user_version", known).map_err(sqlite)?;
    }
    Ok(())
}

/// What SQLite says when a file is opened.
pub(crate) fn sqlite(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { path },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => OpenError::ReadOnly { path },
        _ => OpenError::Sqlite { path, source: Box::new(error) },
    }
}
