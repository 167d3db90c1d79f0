//! The desk over HTTP, without a network.
#![cfg(test)]

mod calls;
mod decisions;
mod page;
mod setup;
mod story;
mod support;
