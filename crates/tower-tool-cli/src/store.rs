use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tower_tool::store::LedgerStore;
use tower_tool_redis::RedisStore;
use tower_tool_sqlite::SqliteStore;

/// Where a ledger lives, as users write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    Sqlite(PathBuf),
    Redis(String),
}

impl FromStr for StoreUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("memory:") {
            return Err("a ledger in memory is gone with its process: there is nothing to look at");
        }
        match text.split_once(':') {
            Some(("sqlite", "")) => Err("`sqlite:` lacks the path of its file"),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("redis" | "rediss" | "redis+unix" | "unix", _)) => Ok(Self::Redis(text.to_owned())),
            _ => Err("it is neither `sqlite:PATH` nor `redis://HOST:PORT`"),
        }
    }
}

impl StoreUrl {
    /// Opens the store, which must be there: who looks for a ledger does not want a new one.
    pub(crate) async fn open(self, seal_key: Option<PathBuf>) -> Result<Arc<dyn LedgerStore>, Box<dyn Error>> {
        Ok(match self {
            Self::Sqlite(path) if !path.exists() => {
                return Err(format!("there is no file {}", path.display()).into());
            }
            Self::Sqlite(path) => Arc::new(SqliteStore::open(path)?),
            Self::Redis(url) => {
                let mut store = RedisStore::builder(&url);
                if let Some(file) = seal_key {
                    let key = std::fs::read(&file)
                        .map_err(|error| format!("the seal key in `{}` cannot be read: {error}", file.display()))?;
                    store = store.seal_key(&key);
                }
                Arc::new(store.connect().await?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_store_is_refused() {
        assert_eq!("sqlite:/var/lib/desk.db".parse(), Ok(StoreUrl::Sqlite("/var/lib/desk.db".into())));
        assert_eq!("redis://h:6379/1".parse(), Ok(StoreUrl::Redis("redis://h:6379/1".to_owned())));
        for bad in ["", "memory:", "sqlite:", "postgres://h", "/var/lib/desk.db", "redis", "SQLITE:x"] {
            assert!(bad.parse::<StoreUrl>().is_err(), "{bad}");
        }
    }
}
