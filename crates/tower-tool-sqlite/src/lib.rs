//! tower-tool's stores in one SQLite file, for several processes on one machine.
//!
//! A [`SqliteStore`] is a [`LedgerStore`](tower_tool_core::store::LedgerStore) and a
//! [`QuotaStore`](tower_tool_core::store::QuotaStore). Clones share their connections; further processes open the same file.
//!
//! ```
//! use tower_tool_sqlite::SqliteStore;
//!
//! # let directory = std::env::temp_dir().join(format!("tower-tool-doc-{}", std::process::id()));
//! # let path = directory.join("ledger.db");
//! let store = SqliteStore::open(path)?;
//! # drop(store);
//! # std::fs::remove_dir_all(directory).unwrap();
//! # Ok::<(), tower_tool_sqlite::OpenError>(())
//! ```
//!
//! # What is promised
//!
//! - **A crash of a process** loses nothing that was acknowledged. Changes are written to the log (WAL) and synced
//!   (`synchronous=FULL`) before anybody is told of them. Changes that are asked for at once share a sync.
//! - **A power cut** loses nothing that was acknowledged either, as long as the disk syncs what it says it has synced.
//! - **A full disk** refuses changes, and says so; what was acknowledged stays, and when there is room again the same store
//!   goes on.
//! - **A network file system** is refused when the file is opened: the log needs memory that all processes share.
//! - **A step of the wall clock** changes nothing. Store time is the time since the machine was started, and how that and the
//!   wall clock belong together is kept in the file, so all processes of one start go by the same. When the machine starts anew
//!   it is taken from the wall clock again, and never behind the latest that the file has seen. Should the wall clock have been
//!   wrong then, so is store time, until the next start. Where a system has no such clock (other than Linux), the wall clock is
//!   used, and held from going back within a process.
//! - **Others** cannot read it: the file is made with mode 0600, and made so if it is not; a directory that is missing is made
//!   with mode 0700, and one that others may write to is refused.
//!
//! # What is not
//!
//! It is for one machine. A file that is copied while processes have it open is not whole without its log (`-wal`).
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod caps;
mod clock;
mod error;
mod file;
mod find;
mod in_flight;
mod keeper;
mod ledger;
#[cfg(test)]
mod plans;
mod quota;
mod record;
mod remote;
mod schema;
mod slot;
mod store;
mod swap;
mod table;
mod watch;
mod worker;

pub use builder::SqliteStoreBuilder;
pub use error::OpenError;
pub use store::SqliteStore;
