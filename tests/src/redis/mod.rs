//! Real servers of Redis and Valkey, started, hurt and stopped by a test; and a [`Proxy`] to hurt what lies between.
//!
//! A mock answers what its author believed. Whether a claim survives a kill, a failover or a lost reply, only a server
//! tells. `cargo xtask test` finds the programs and names them in the environment; without it a start is an error that
//! says so, and no test is skipped.
//!
//! Everything here waits for other processes: the clock of tokio must not be paused.
//!
//! ```no_run
//! use tower_tool_tests::redis::{Direction, Options, Proxy, RedisServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let mut server = RedisServer::start(Options::new().append_only()).await?;
//! let proxy = Proxy::start(server.address()).await?;
//! // … a client at `proxy.url()` …
//! proxy.cut_after(Direction::Replies, 0); // the next command runs, and its reply is lost with the connection
//! server.kill();
//! server.restart().await?; // the same port, the same data
//! # Ok(())
//! # }
//! ```

mod cluster;
mod frames;
mod proxy;
mod resp;
mod sentinel;
mod server;

use std::env;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

pub use self::cluster::{RedisCluster, slot};
pub use self::proxy::{Direction, Proxy, Traffic};
pub use self::resp::{Connection, Value};
pub use self::sentinel::RedisSentinels;
pub use self::server::{Options, RedisServer};

/// How long anything is waited for, and the pause before it is looked at again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// A server's program, by its kind and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    name: String,
    path: PathBuf,
}

impl Program {
    /// The kind and version, as in `redis-7.0.15` or `valkey-9.1.2`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }
}

/// Every server that there is, from `REDIS_SERVERS`.
///
/// # Errors
///
/// If the variable is not set, names nothing, or is not a list of `name=path`.
pub fn programs() -> io::Result<Vec<Program>> {
    let list = variable("REDIS_SERVERS")?;
    list.split(',')
        .map(|entry| match entry.split_once('=') {
            Some((name, path)) => Ok(Program { name: name.to_owned(), path: PathBuf::from(path) }),
            None => Err(io::Error::other(format!("`REDIS_SERVERS` is a list of name=path, not `{entry}`"))),
        })
        .collect()
}

/// The address of a server that runs for all tests and keeps nothing, from `REDIS_URL`. Others write to it too.
///
/// # Errors
///
/// If the variable is not set.
pub fn shared_url() -> io::Result<String> {
    variable("REDIS_URL")
}

/// Waits until the condition holds, looking again and again.
///
/// # Errors
///
/// If it does not hold in time, with what was waited for and the last error.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> io::Result<bool>) -> io::Result<()> {
    let mut wait = Wait::new(what);
    while wait.goes_on(condition().await).await? {}
    Ok(())
}

/// A wait for something that only a look can tell. A loop and no closure, since futures with async closures in them are not
/// `Send` as far as the compiler sees.
struct Wait<'a> {
    what: &'a str,
    deadline: Instant,
}

impl<'a> Wait<'a> {
    fn new(what: &'a str) -> Self {
        Self { what, deadline: Instant::now() + PATIENCE }
    }

    /// Takes in a look, pauses if it is to be repeated, and fails if there is no time left for that.
    async fn goes_on(&mut self, look: io::Result<bool>) -> io::Result<bool> {
        if matches!(look, Ok(true)) {
            return Ok(false);
        }
        if Instant::now() >= self.deadline {
            let why = look.err().map(|error| format!("; the last error: {error}")).unwrap_or_default();
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("waited in vain for {}{why}", self.what)));
        }
        pause(PAUSE).await;
        Ok(true)
    }
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(|| {
        let mend = "tests on servers are run by `cargo xtask test`, which installs and starts what they need";
        io::Error::new(io::ErrorKind::NotFound, format!("`{name}` is not set: {mend}"))
    })
}

#[expect(clippy::disallowed_methods, reason = "a foreign program sends no event when it has become what is waited for")]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
