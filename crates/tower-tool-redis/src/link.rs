//! Commands and their answers.
//!
//! What is sent on a connection to one server runs in order, so an answer to a later command says that an earlier one ran, or
//! never will. A connection on which a reply did not come in time is given up: its number tells it from the next.

use std::fmt;
use std::time::Duration;

use redis::aio::ConnectionLike as _;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout_at};
use tower_tool_core::store::StoreError;

use crate::connector::{Connection, Connector, Source};
use crate::scripts::Lua;

/// Which node of a cluster a command is for.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    /// The one whose slot the keys are in.
    Keys,
    /// The master of the slot of this key.
    MasterOf(&'a str),
    /// The one at this address.
    At(&'a str, u16),
    /// Every master: in a cluster the answer is one of each, by its address.
    Masters,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) why: Why,
    pub(crate) error: StoreError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nothing was sent.
    NotSent,
    /// The server refused it: nothing was changed.
    Refused,
    /// A key is there that is none of ours.
    Strange,
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
    connector: Connector,
    pub(crate) timeout: Duration,
}

// By hand: an address may carry a password.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connector, timeout } = self;
        let source = match connector.source() {
            Source::Single(_) => "single",
            Source::Sentinel(_) => "sentinel",
            Source::Cluster { .. } => "cluster",
        };
        f.debug_struct("Link").field("source", &source).field("timeout", timeout).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(source: Source, timeout: Duration) -> Self {
        Self { connector: Connector::new(source, timeout), timeout }
    }

    pub(crate) fn source(&self) -> &Source {
        self.connector.source()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.source(), Source::Cluster(_))
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

    /// Runs commands on one connection to the master of the slot of this key, with nothing in between that came from here.
    pub(crate) async fn together(
        &self,
        commands: Pipeline,
        key: &str,
        until: Instant,
    ) -> Result<Vec<Value>, StoreError> {
        let (number, connection) = self.connected(until).await?;
        let count = commands.len();
        let answers = match connection {
            Connection::Single(mut connection) => {
                timeout_at(until, connection.send_packed_commands(&commands, 0, count)).await
            }
            Connection::Cluster(mut connection) => {
                let route = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
                timeout_at(until, connection.route_pipeline(commands, 0, count, route)).await
            }
        };
        let each = |answers: Vec<Value>| answers.into_iter().map(Value::extract_error).collect();
        self.taken(number, answers, each).map_err(|(failure, _)| failure.error)
    }

    async fn connected(&self, until: Instant) -> Result<(u64, Connection), StoreError> {
        match timeout_at(until, self.connector.connection()).await {
            Ok(connection) => connection.map_err(StoreError::unavailable),
            Err(late) => Err(StoreError::unavailable(late)),
        }
    }

    async fn send(
        &self,
        command: &Cmd,
        node: Node<'_>,
        until: Instant,
        on_sent: &impl Fn(u64),
    ) -> Result<Answer, (Failure, Option<RedisError>)> {
        let connected = self.connected(until).await;
        let (number, mut connection) = connected.map_err(|error| (Failure { why: Why::NotSent, error }, None))?;
        let sent = Instant::now();
        on_sent(number);
        let answer = match &mut connection {
            Connection::Single(connection) => timeout_at(until, connection.req_packed_command(command)).await,
            Connection::Cluster(connection) => timeout_at(until, in_cluster(connection, command, node)).await,
        };
        let value = self.taken(number, answer, Value::extract_error)?;
        Ok(Answer { value, sent, connection: number })
    }

    /// Takes in what came, and gives the connection up if another may do better.
    fn taken<T, L: std::error::Error + Send + Sync + 'static>(
        &self,
        number: u64,
        answer: Result<Result<T, RedisError>, L>,
        extract_error: impl FnOnce(T) -> Result<T, RedisError>,
    ) -> Result<T, (Failure, Option<RedisError>)> {
        match answer.map(|answer| answer.and_then(extract_error)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if breaks(&error) {
                    self.connector.give_up(number);
                }
                Err((failure(&error), Some(error)))
            }
            Err(late) => {
                self.connector.give_up(number);
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
        Node::Masters => {
            let route = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            return connection.route_command(command.clone(), route).await;
        }
    };
    connection.route_command(command.clone(), RoutingInfo::SingleNode(route)).await
}

/// Whether another connection may do better.
fn breaks(error: &RedisError) -> bool {
    match error.kind() {
        // It is a replica now.
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => true,
        // It may have been cut off from those who have another master by now.
        ErrorKind::Extension => error.code() == Some("NOREPLICAS"),
        ErrorKind::Server(_) => false,
        _ => true,
    }
}

/// What the server said no to was not done: scripts write nothing before what may be refused.
fn failure(error: &RedisError) -> Failure {
    let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    // Older servers say so within what they say of the script.
    let says = |code: &str| {
        let text = error.to_string();
        error.code() == Some(code) || ["-", ": "].iter().any(|before| text.contains(&format!("{before}{code} ")))
    };
    if is_answer && says("OOM") {
        return Failure { why: Why::Refused, error: StoreError::full() };
    }
    let why = match is_answer {
        true if says("WRONGTYPE") => Why::Strange,
        true => Why::Refused,
        false => Why::Lost,
    };
    Failure { why, error: StoreError::unavailable(error.clone()) }
}
