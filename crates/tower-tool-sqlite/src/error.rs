use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use rusqlite::ErrorCode;
use tower_tool_core::store::StoreError;

/// The file cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory or the file cannot be made or read.
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may write to the directory, and so put another file in the place of this one.
    OpenToOthers {
        /// The directory.
        path: PathBuf,
    },
    /// The file lies on a network file system.
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
    },
    /// The file, or its directory, cannot be written.
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file is not one of ours.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version has written the file.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest version that is known here.
        known: i64,
    },
    /// SQLite failed.
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, .. } => write!(f, "`{}` cannot be made or read", path.display()),
            Self::OpenToOthers { path } => write!(
                f,
                "others may write to the directory `{0}`: `chmod go-w {0}`, or choose one of your own",
                path.display()
            ),
            Self::NetworkFileSystem { path } => write!(
                f,
                "`{}` lies on a network file system, where processes cannot share a log: choose a local disk, or a store \
                 for several machines",
                path.display()
            ),
            Self::ReadOnly { path } => write!(
                f,
                "`{}` cannot be written: give the user of this process the right to write it and its directory",
                path.display()
            ),
            Self::Foreign { path } => {
                write!(f, "`{}` is not a store of tower-tool: name another file, or move this one away", path.display())
            }
            Self::Newer { path, found, known } => write!(
                f,
                "`{}` has version {found}, and the latest that is known here is {known}: use a later tower-tool",
                path.display()
            ),
            Self::Sqlite { path, .. } => write!(f, "SQLite cannot open `{}`", path.display()),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Sqlite { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// A question to SQLite that failed.
pub(crate) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::corrupt(error),
        Some(ErrorCode::DiskFull) => {
            StoreError::unavailable(format!("the disk is full: nothing is kept until there is room ({error})"))
        }
        _ => StoreError::unavailable(error),
    }
}
