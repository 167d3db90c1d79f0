//! The store on real servers.
#![cfg(feature = "server-tests")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod suite;
