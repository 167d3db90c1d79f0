//! tower-tool's stores over Redis or Valkey, for several machines.
//!
//! [`RedisStore`] keeps what the ledger must not forget, and counts calls for shared rate limits: on one server, on whichever
//! server sentinels name, or in a cluster. Redis 6.2 to 8 and Valkey 8 and 9.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use tower_tool_redis::RedisStore;
//!
//! let store = RedisStore::builder("redis://127.0.0.1:6379").seal_key(&[7; 32]).connect().await?;
//! # let _ = store;
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! A record is changed by one script in one round trip: it compares the revision, writes the record, its result, everything by
//! which it is found and when it may be forgotten, and announces the change. A claim, an end and a look are one round trip
//! each, whoever loses gets the winner's record in the same; to find a record by a card or an execution is two.
//!
//! A command carries a deadline in the server's time, half of the response timeout away, and is refused after it. A caller whose
//! reply was lost looks again until the record tells or the deadline is over, so a swap is won, lost or an error, and a claim
//! that ended in an error is never made once this store has answered a question about it. A connection on which a reply did
//! not come in time is given up, in a cluster as soon as there is another. An outage is an error within the timeout, of a swap
//! within twice that time; calls share the attempts to connect, which become rarer, and when the server is back, so is the store.
//!
//! # What the server must be set up for
//!
//! - **Eviction.** `maxmemory-policy noeviction`. With any other, records vanish when memory is short, and what was done may be
//!   done again. Without room, new claims are refused before anything runs.
//! - **Persistence.** `appendonly yes` and `appendfsync always`: with `everysec` a crash of the machine takes back up to a second of
//!   what was acknowledged, without either a restart takes all.
//! - **Time.** Every process goes by the server's clock. If that steps ahead, leases and windows end early; if it steps back, they
//!   last longer, and a command that was delayed meanwhile may be run late. [`LedgerStore::now`] never goes back.
//!
//! What of this is not so is in [`RedisStore::warnings`] and in the log, as far as the server tells.
//!
//! # Failover
//!
//! Replication is asynchronous. When a replica takes over, or two sides of a split network each have a master, the newest records may
//! be lost: **a claim that was acknowledged can vanish, and then the tool may run a second time.** Whoever made it learns so at the
//! latest when it is to be finished, since the record is gone ([`Swap::Lost`] of none) or another's.
//! [`wait_replicas`](RedisStoreBuilder::wait_replicas) waits after every swap until so many replicas *have received* it. That buys that
//! a master may crash alone without a loss, as long as one of those replicas takes over. It does not buy consensus: the vote may
//! still fall on a replica that has less, and a master that was cut off goes on to acknowledge until it notices
//! (`min-replicas-to-write` narrows that). What must never happen twice, whatever fails, wants the provider's own idempotency key,
//! or one machine and `tower-tool-sqlite`.
//!
//! In a cluster the cards of a tenant are in another slot than its records. They are listed before the record is written and
//! checked when they are read; if a process dies in between, a change of a card may be announced late, with the next one. A node
//! that does not answer holds up its own sessions, and the others only for the moment in which another connection is made.
//!
//! # Rights
//!
//! The least that a user needs, with the default prefix. Without `+time` late commands cannot be refused, without `+config|get`
//! settings are not checked, and `+wait` is for [`wait_replicas`](RedisStoreBuilder::wait_replicas) alone.
//!
//! ```text
//! ACL SETUSER agent on >secret resetkeys ~agent:* resetchannels &agent:* nocommands +eval +evalsha +time +ping +config|get
//! +get +set +del +persist +pexpire +hget +hmget +hset +hdel +hexists +hincrby +hstrlen +zadd +zrem +zcard +zrange +zrevrange
//! +zrangebyscore +scan +wait +publish +subscribe +unsubscribe
//! ```
//!
//! In a cluster also `+cluster|slots`, and from 7.0 on `+spublish +ssubscribe +sunsubscribe`.
//!
//! # Secrets
//!
//! Records hold arguments and results. With `rediss://` and the feature `tls` they are not read on the way; certificates are checked
//! against those of the system, or of `root_certificates`. [`seal_key`](RedisStoreBuilder::seal_key) puts an HMAC-SHA256 over the name and the bytes of
//! every record and result: whoever can write to the server cannot make up or move one, but can remove it or put back an
//! older one of the same name.
//!
//! # Keys
//!
//! All begin with the prefix, `agent` if it is not set. Parts are percent-encoded but for letters, digits, `.`, `_` and `-`.
//!
//! | Key | What |
//! | --- | --- |
//! | `agent:idem:{tenant/scope}:tool:sha256` | a record |
//! | `agent:exec:{tenant/scope}` | whose an execution is |
//! | `agent:ends:{tenant/scope}` | when records may be forgotten |
//! | `agent:actor:{tenant/scope}:actor` | the records of an actor |
//! | `agent:body:{tenant/scope}:actor`, `agent:order:…` | results, and which is oldest |
//! | `agent:cards:{tenant}`, `pending`, `cards-end`, `cards-at` | cards |
//! | `agent:quota:{tenant/sha256}` | a bucket |
//! | `agent:changed:…` | channels |
//!
//! Of [`Limits`] the store keeps those of a result and of a session; what all may have together is `maxmemory`.
//!
//! [`LedgerStore::now`]: tower_tool_core::store::LedgerStore::now
//! [`Limits`]: tower_tool_core::store::Limits
//! [`Swap::Lost`]: tower_tool_core::store::Swap::Lost

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod builder;
mod check;
mod codec;
mod connector;
mod doubt;
mod ears;
mod keys;
mod link;
mod quota;
mod read;
mod replicas;
mod scan;
mod scripts;
mod source;
mod store;
mod swap;
mod time;
mod watch;

pub use builder::{DEFAULT_PREFIX, DEFAULT_RESPONSE_TIMEOUT, RedisStoreBuilder};
pub use check::Warning;
pub use store::RedisStore;
