//! Whole-stack tests.
#![cfg(test)]

#[cfg(feature = "browser")]
mod browser;
#[cfg(all(unix, feature = "redis"))]
mod redis;
