//! The tables, and how they came to be version by version.

use std::path::Path;

use rusqlite::Connection;

use crate::error::OpenError;

/// `tool`, in the place where SQLite keeps whose file it is.
const APPLICATION_ID: i64 = 0x746f_6f6c;

/// What makes each version of the one before it.
const MIGRATIONS: &[&str] = &[include_str!("schema/1.sql")];

/// The latest version.
pub(crate) const VERSION: i64 = 1;

/// What is asked of the file before every change.
pub(crate) const ASK_VERSION: &str = "PRAGMA user_version";

/// Which version the file has, zero for one that is new. Changes nothing. Within a transaction of the caller, or the file might be
/// made between one question and the next.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<i64, OpenError> {
    let number = |sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|error| OpenError::sqlite(path, error))
    };
    let (whose, found) = (number("PRAGMA application_id")?, number(ASK_VERSION)?);
    let is_new = whose == 0 && found == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0;
    if !is_new && whose != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    if found > VERSION {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: VERSION });
    }
    Ok(found)
}

/// Brings the file to the latest version, within a transaction of the caller.
pub(crate) fn migrate(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let found = check(connection, path)?;
    if found == VERSION {
        return Ok(());
    }
    let sqlite = |error| OpenError::sqlite(path, error);
    let done = usize::try_from(found).unwrap_or_default();
    for migration in MIGRATIONS.iter().skip(done) {
        connection.execute_batch(migration).map_err(sqlite)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
    connection.pragma_update(None, "user_version", VERSION).map_err(sqlite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_migration_and_is_made_once() {
        assert_eq!(MIGRATIONS.len(), usize::try_from(VERSION).unwrap());
        let file = Connection::open_in_memory().unwrap();
        let path = Path::new("ledger.db");
        assert_eq!(check(&file, path).unwrap(), 0);
        migrate(&file, path).unwrap();
        assert_eq!(check(&file, path).unwrap(), VERSION);
        file.execute("UPDATE totals SET records = 7", []).unwrap();
        migrate(&file, path).unwrap();
        let records: i64 = file.query_row("SELECT records FROM totals", [], |row| row.get(0)).unwrap();
        assert_eq!(records, 7);
    }
}
