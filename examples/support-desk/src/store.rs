//! Where the ledger lives. The tools and their stack do not know.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tower_tool::memory::MemoryLedger;
use tower_tool::store::LedgerStore;
use tower_tool_redis::RedisStore;
use tower_tool_sqlite::SqliteStore;

use crate::app::StartError;

/// Where the ledger lives.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these three are all there are")]
pub enum Store {
    /// In memory: forgotten with the process.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    /// On the server of this URL.
    Redis(String),
}

/// Text that names no store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownStore;

impl fmt::Display for UnknownStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`memory:`, `sqlite:PATH` or `redis://HOST:PORT`")
    }
}

impl FromStr for Store {
    type Err = UnknownStore;

    fn from_str(text: &str) -> Result<Self, UnknownStore> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("redis" | "rediss" | "unix", _)) => Ok(Self::Redis(text.to_owned())),
            _ => Err(UnknownStore),
        }
    }
}

// By hand: a URL may hold a password.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("Memory"),
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Redis(_) => f.write_str("Redis(..)"),
        }
    }
}

/// For those who start the desk.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory, and is forgotten when the desk stops"),
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Redis(_) => f.write_str("Redis"),
        }
    }
}

impl Store {
    pub(crate) async fn open(&self) -> Result<Arc<dyn LedgerStore>, StartError> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryLedger::new()),
            Self::Sqlite(path) => Arc::new(SqliteStore::open(path).map_err(|error| {
                StartError::with_source(format!("the ledger `{}` cannot be opened", path.display()), error)
            })?),
            Self::Redis(url) => Arc::new(
                RedisStore::connect(url)
                    .await
                    .map_err(|error| StartError::with_source("the ledger in Redis cannot be opened", error))?,
            ),
        })
    }
}
