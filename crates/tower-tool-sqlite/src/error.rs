use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use tower_tool_core::error::BoxError;
use tower_tool_core::store::StoreError;

use crate::file;

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
    /// There is no room for the file.
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Another process has been writing for longer than anybody waits.
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file is not one of ours. It was left as it was.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version has written the file. It was left as it was.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest version that is known here.
        known: i64,
    },
    /// The file is damaged.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BoxError,
    },
    /// SQLite failed.
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BoxError,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let code = error.sqlite_error_code();
        let (path, source) = (path.to_owned(), error.into());
        match code {
            Some(ErrorCode::NotADatabase) => Self::Foreign { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, source },
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed) => Self::Busy { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly { path },
            // Also where there are too many open files.
            Some(ErrorCode::CannotOpen) if !file::is_writable(&path) => Self::ReadOnly { path },
            _ => Self::Sqlite { path, source },
        }
    }
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
            Self::Full { path } => {
                write!(f, "there is no room for `{}`: free some on its disk, nothing is lost", path.display())
            }
            Self::Busy { path } => write!(
                f,
                "another process has been writing to `{}` for too long: see whether one stands still in the middle",
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
            Self::Corrupt { path, .. } => write!(
                f,
                "`{}` is damaged: recover it (`sqlite3 FILE .recover`) or put a copy in its place; an empty one would \
                 forget what was executed",
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
            Self::Corrupt { source, .. } | Self::Sqlite { source, .. } => Some(&**source),
            Self::OpenToOthers { .. }
            | Self::NetworkFileSystem { .. }
            | Self::ReadOnly { .. }
            | Self::Full { .. }
            | Self::Busy { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. } => None,
        }
    }
}

/// A question to SQLite that failed, or a change before its end.
pub(crate) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::corrupt(error),
        _ => unavailable(error),
    }
}

/// Anything that failed, with what helps.
pub(crate) fn unavailable(error: rusqlite::Error) -> StoreError {
    let mend = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full; free some of it, and the store goes on by itself",
        Some(ErrorCode::DatabaseBusy) => "another process is writing for too long; see whether one stands still",
        Some(ErrorCode::ReadOnly) => "the file cannot be written any more; see to its rights and its disk",
        Some(ErrorCode::SystemIoFailure) => "the disk failed; see the system's log",
        _ => return StoreError::unavailable(error),
    };
    StoreError::unavailable(format!("{mend} ({error})"))
}
