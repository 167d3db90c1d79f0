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
//!   (`synchronous=FULL`) before anybody is told of them. Changes that are asked for at once share a sync; one that fails by itself
//!   takes no other along.
//! - **A power cut** loses nothing that was acknowledged either, as long as the disk syncs what it says it has synced.
//! - **A commit that failed** was made or not, and is never made later: until another one has succeeded, nothing is answered.
//! - **A full disk** refuses changes, and says so; what was acknowledged stays and can be read, and when there is room again the
//!   same store goes on.
//! - **Several processes** on one machine share the file. Each waits for its turn to write, for ten seconds at most; then it is told
//!   that the store is not available. That happens where one stands still (`SIGSTOP`) in the middle of a commit. Who waits for
//!   a change in another process hears of it within 20 milliseconds or so.
//! - **A network file system** is refused when the file is opened: the log needs memory that all processes share. So is FUSE, which
//!   does not say whether it is one.
//! - **A step of the wall clock** changes nothing. Store time is the time since the machine was started, and how that and the
//!   wall clock belong together is kept in the file, so all processes of one start go by the same. When the machine starts anew
//!   it is taken from the wall clock again, and never behind the latest that the file has seen. Should the wall clock have been
//!   wrong then, so is store time, until the next start. Where a system has no such clock (other than Linux), the wall clock is
//!   used, and held from going back within a process.
//! - **Others** cannot read it: the file is made with mode 0600, and it and its log are made so if they are not; a directory that
//!   is missing is made with mode 0700, and one that others may write to is refused.
//! - **A file of somebody else**, and one of a later version, is refused and left as it was. Where a later version changes the file
//!   while it is open here, or it is moved or removed, nothing more is written to it.
//! - **A record that is damaged**, or in the place of another, is an error that names its row, and in nobody else's way.
//!
//! # What is not
//!
//! - It is for one machine, and the directory for processes of one user.
//! - A copy that was made while processes had the file open is not whole without its log (`-wal`): copy it with SQLite's own
//!   `.backup`. A copy that is put back has forgotten what was executed since.
//! - The file does not become smaller: what is freed is used again. What was deleted may still be read from it by whoever may
//!   read the file.
//! - There are at most a million buckets that are not full; beyond that, calls that would need another are refused.
//!
//! Waiting for a change needs a tokio runtime with a timer.
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
