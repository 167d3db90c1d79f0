//! The store in a file, as processes use it.
#![cfg(test)]

mod commit;
mod corrupt;
mod directory;
mod durable;
mod files;
mod foreign;
mod full;
mod locks;
mod quota;
mod suite;
mod threads;
mod time;
