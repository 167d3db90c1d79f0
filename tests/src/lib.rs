//! What the whole-stack tests, and the tests of the crates, run against: services that no process of theirs can stand for.

#[cfg(unix)]
pub mod redis;
