//! The store in a file, as processes use it.
#![cfg(test)]

mod directory;
mod durable;
mod files;
mod locks;
mod suite;
mod threads;
