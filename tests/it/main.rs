//! Whole-stack tests.
#![cfg(test)]

#[cfg(feature = "browser")]
mod browser;
