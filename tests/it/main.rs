//! Whole-stack tests.
#![cfg(test)]

#[cfg(feature = "browser")]
mod browser;
#[cfg(unix)]
mod ledger;
#[cfg(all(unix, feature = "redis"))]
mod redis;
