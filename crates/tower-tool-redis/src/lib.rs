//! tower-tool's stores over Redis or Valkey, for several machines.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod check;
mod codec;
mod doubt;
mod keys;
mod link;
mod quota;
mod read;
mod scan;
mod scripts;
mod store;
mod swap;
mod time;
mod watch;

pub use builder::{DEFAULT_PREFIX, DEFAULT_RESPONSE_TIMEOUT, RedisStoreBuilder};
pub use check::Warning;
pub use store::RedisStore;
