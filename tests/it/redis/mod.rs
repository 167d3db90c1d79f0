//! Tests on servers of Redis and Valkey. These say that the servers, their groups and the proxy do what
//! they promise.

mod cluster;
mod proxy;
mod sentinel;
mod server;
