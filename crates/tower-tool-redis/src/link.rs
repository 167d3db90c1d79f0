//! The connection, and what becomes of it.
//!
//! One connection is shared by all calls. What is sent on it runs in order, so an answer to a later command says that an earlier
//! one ran, or never will. A connection on which a reply did not come in time is given up: its number tells it from the next.

use std::fmt;
use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tower_tool_core::store::StoreError;

use crate::scripts::Lua;

/// Where servers are.
pub(crate) enum Source {
    Single(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
    Cluster { client: Box<ClusterClient>, seeds: Vec<Client> },
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Which node of a cluster a command is for.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    /// The one whose slot the keys are in.
    Keys,
    /// The master of the slot of this key.
    MasterOf(&'a str),
    /// The one at this address.
    At(&'a str, u16),
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) why: Why,
    pub(crate) error: StoreError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nothing was sent, or the server refused it: nothing was changed.
    Refused,
    /// It may have been done, or be done yet.
    Lost,
}

/// An answer, and on which connection it came.
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) sent: Instant,
    pub(crate) connection: u64,
}

pub(crate) struct Link {
    pub(crate) source: Source,
    pub(crate) timeout: Duration,
    /// Connections have numbers, from 1.
    current: StdMutex<(u64, Option<Connection>)>,
    connecting: Mutex<()>,
}

// By hand: an address may carry a password.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, timeout, current: _, connecting: _ } = self;
        let source = match source {
            Source::Single(_) => "single",
            Source::Sentinel(_) => "sentinel",
            Source::Cluster { .. } => "cluster",
        };
        f.debug_struct("Link").field("source", &source).field("timeout", timeout).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(source: Source, timeout: Duration) -> Self {
        Self { source, timeout, current: StdMutex::new((1, None)), connecting: Mutex::new(()) }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.source, Source::Cluster { .. })
    }

    fn current(&self) -> (u64, Option<Connection>) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nobody is given this connection any more.
    fn give_up(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number {
            *current = (number + 1, None);
        }
    }

    async fn connection(&self) -> Result<(u64, Connection), RedisError> {
        if let (number, Some(connection)) = self.current() {
            return Ok((number, connection));
        }
        // One connects for all. Whoever leaves meanwhile leaves it to the next.
        let _connecting = self.connecting.lock().await;
        if let (number, Some(connection)) = self.current() {
            return Ok((number, connection));
        }
        let connection = self.connect().await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.1 = Some(connection.clone());
        Ok((current.0, connection))
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        let client = match &self.source {
            Source::Single(client) => Client::clone(client),
            Source::Sentinel(sentinel) => sentinel.lock().await.async_get_client().await?,
            Source::Cluster { client, .. } => return Ok(Connection::Cluster(client.get_async_connection().await?)),
        };
        // Time is kept for every command here, so that who gave up is known.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(self.timeout)).set_response_timeout(None);
        Ok(Connection::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    /// Where announcements come from: the server, or any node, as what is published goes to all.
    pub(crate) async fn announcements(&self, attempt: usize) -> Result<redis::aio::PubSub, RedisError> {
        let client = match &self.source {
            Source::Single(client) => Client::clone(client),
            Source::Sentinel(sentinel) => sentinel.lock().await.async_get_client().await?,
            Source::Cluster { seeds, .. } => match seeds.iter().cycle().nth(attempt % seeds.len().max(1)) {
                Some(seed) => seed.clone(),
                None => return Err((ErrorKind::InvalidClientConfig, "a cluster needs the address of a node").into()),
            },
        };
        client.get_async_pubsub().await
    }

    /// Runs a script. What does not know it is given it in full.
    pub(crate) async fn run(
        &self,
        lua: &Lua,
        keys: &[String],
        arguments: &[&[u8]],
        until: Instant,
        on_sent: impl Fn(u64),
    ) -> Result<Answer, Failure> {
        match self.send(&lua.command(false, keys, arguments), Node::Keys, until, &on_sent).await {
            Err((_, Some(error))) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {}
            other => return other.map_err(|(failure, _)| failure),
        }
        self.send(&lua.command(true, keys, arguments), Node::Keys, until, &on_sent)
            .await
            .map_err(|(failure, _)| failure)
    }

    /// Runs a command.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        command: &Cmd,
        node: Node<'_>,
        until: Instant,
    ) -> Result<T, StoreError> {
        let answer = self.answer(command, node, until).await?;
        T::from_redis_value(answer.value).map_err(StoreError::unavailable)
    }

    /// Runs a command, and tells on which connection.
    pub(crate) async fn answer(&self, command: &Cmd, node: Node<'_>, until: Instant) -> Result<Answer, StoreError> {
        self.send(command, node, until, &|_| {}).await.map_err(|(failure, _)| failure.error)
    }

    async fn send(
        &self,
        command: &Cmd,
        node: Node<'_>,
        until: Instant,
        on_sent: &impl Fn(u64),
    ) -> Result<Answer, (Failure, Option<RedisError>)> {
        let refused = |error: StoreError| Failure { why: Why::Refused, error };
        let (number, mut connection) = match timeout_at(until, self.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err((refused(StoreError::unavailable(error)), None)),
            Err(late) => return Err((refused(StoreError::unavailable(late)), None)),
        };
        let sent = Instant::now();
        on_sent(number);
        let answer = match &mut connection {
            Connection::Single(connection) => timeout_at(until, connection.req_packed_command(command)).await,
            Connection::Cluster(connection) => timeout_at(until, in_cluster(connection, command, node)).await,
        };
        match answer.map(|answer| answer.and_then(Value::extract_error)) {
            Ok(Ok(value)) => Ok(Answer { value, sent, connection: number }),
            Ok(Err(error)) => {
                if breaks(&error) {
                    self.give_up(number);
                }
                Err((failure(&error), Some(error)))
            }
            Err(late) => {
                self.give_up(number);
                Err((Failure { why: Why::Lost, error: StoreError::unavailable(late) }, None))
            }
        }
    }
}

async fn in_cluster(connection: &mut ClusterConnection, command: &Cmd, node: Node<'_>) -> Result<Value, RedisError> {
    let route = match node {
        Node::Keys => return connection.req_packed_command(command).await,
        Node::MasterOf(key) => SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master)),
        Node::At(host, port) => SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port },
    };
    connection.route_command(command.clone(), RoutingInfo::SingleNode(route)).await
}

/// Whether another connection may do better.
fn breaks(error: &RedisError) -> bool {
    match error.kind() {
        // It is a replica now.
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => true,
        ErrorKind::Server(_) => false,
        _ => true,
    }
}

/// What the server said no to was not done: scripts write nothing before what may be refused.
fn failure(error: &RedisError) -> Failure {
    let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    // Older servers say so within what they say of the script.
    let is_full = error.code() == Some("OOM") || error.to_string().contains("-OOM ");
    if is_answer && is_full {
        return Failure { why: Why::Refused, error: StoreError::full() };
    }
    let why = if is_answer { Why::Refused } else { Why::Lost };
    Failure { why, error: StoreError::unavailable(error.clone()) }
}
