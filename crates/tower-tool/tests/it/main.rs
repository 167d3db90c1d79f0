//! The facade's tests, at the level where a user of the stack would see the behaviour.
//!
//! A test that stands for a failure of others cites it (`owner/repo#n`).
#![cfg(test)]

mod approval;
mod arguments;
mod audit;
mod boundary;
mod contract;
mod corpora;
mod decode;
mod drafts;
mod drain;
mod guards;
mod hostile;
mod idempotency;
mod order;
mod rate_limit;
mod rebuild;
mod shared_rate_limit;
mod store;
mod store_suite;
mod support;
mod toolset;
mod validate;
