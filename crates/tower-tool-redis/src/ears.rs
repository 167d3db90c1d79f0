//! The connection on which announcements come.
//!
//! A server announces to those who listen on it. In a cluster that would be an announcement to every node, so there it is made in
//! the slot of what changed, and the nodes of those slots are listened to. Servers before 7.0 cannot, and announce to every node.
//! What a server can do is tried, here as in the scripts, so that both come to the same.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::cluster::ClusterConfig;
use redis::cluster_async::ClusterConnection;
use redis::{Client, ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::connector::{Cluster, Source};

/// What came.
pub(crate) enum Heard {
    /// Something may have changed there.
    At(String),
    /// The server does not announce there any more, as when a slot has moved.
    Dropped(String),
    /// Something may have been missed, wherever.
    Gap,
}

pub(crate) enum Ears {
    Plain { sink: PubSubSink, stream: PubSubStream, patience: Duration },
    Sharded { connection: ClusterConnection, pushes: mpsc::UnboundedReceiver<PushInfo>, patience: Duration },
}

impl Ears {
    /// Connects, and listens to this.
    pub(crate) async fn open(
        source: &Source,
        patience: Duration,
        attempt: usize,
        name: &str,
    ) -> Result<Self, RedisError> {
        let client = match source {
            Source::Single(client) => Client::clone(client),
            Source::Sentinel(sentinel) => sentinel.lock().await.async_get_client().await?,
            Source::Cluster(cluster) => match Self::sharded(cluster, patience, name).await? {
                Some(ears) => return Ok(ears),
                None => a_node(cluster, attempt)?,
            },
        };
        let (mut sink, stream) = PubSub::split(client.get_async_pubsub().await?);
        sink.subscribe(name).await?;
        Ok(Self::Plain { sink, stream, patience })
    }

    /// `None` where the server cannot.
    async fn sharded(cluster: &Cluster, patience: Duration, name: &str) -> Result<Option<Self>, RedisError> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let config = ClusterConfig::new().set_push_sender(sender);
        let mut connection = cluster.ears.get_async_connection_with_config(config).await?;
        match connection.ssubscribe(name).await {
            Ok(()) => Ok(Some(Self::Sharded { connection, pushes, patience })),
            Err(error) if is_unable(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Listens to these too. An error is the end of the connection.
    pub(crate) async fn listen(&mut self, names: &[String]) -> Result<(), RedisError> {
        match self {
            Self::Plain { sink, patience, .. } => in_time(*patience, sink.subscribe(names)).await,
            Self::Sharded { connection, patience, .. } => {
                let each = names.iter().map(|name| {
                    let mut connection = connection.clone();
                    async move { connection.ssubscribe(name).await }
                });
                // A node that is away is no reason to leave the others: looking again has to do.
                let _ = timeout(*patience, join_all(each)).await;
                Ok(())
            }
        }
    }

    /// Listens there no more. An error is the end of the connection.
    pub(crate) async fn leave(&mut self, name: &str) -> Result<(), RedisError> {
        match self {
            Self::Plain { sink, patience, .. } => in_time(*patience, sink.unsubscribe(name)).await,
            Self::Sharded { connection, patience, .. } => {
                let _ = timeout(*patience, connection.sunsubscribe(name)).await;
                Ok(())
            }
        }
    }

    /// What comes next, `None` at the end of the connection. Nothing is lost where this is dropped.
    pub(crate) async fn heard(&mut self) -> Option<Heard> {
        match self {
            Self::Plain { stream, .. } => Some(Heard::At(stream.next().await?.get_channel_name().to_owned())),
            Self::Sharded { pushes, .. } => loop {
                let PushInfo { kind, data } = pushes.recv().await?;
                let name = || match data.first() {
                    Some(Value::BulkString(name)) => String::from_utf8(name.clone()).ok(),
                    Some(Value::SimpleString(name)) => Some(name.clone()),
                    _ => None,
                };
                let heard = match kind {
                    // Also where it begins anew on another connection: what came in between was missed.
                    PushKind::SMessage | PushKind::SSubscribe => name().map(Heard::At),
                    PushKind::SUnsubscribe => name().map(Heard::Dropped),
                    PushKind::Disconnection => Some(Heard::Gap),
                    _ => None,
                };
                if heard.is_some() {
                    return heard;
                }
            },
        }
    }
}

/// A connection that says nothing is as good as none.
async fn in_time(patience: Duration, said: impl Future<Output = Result<(), RedisError>>) -> Result<(), RedisError> {
    timeout(patience, said).await.unwrap_or_else(|_| Err((ErrorKind::Io, "it is not heard whether it listens").into()))
}

/// Any node: what is published goes to all.
fn a_node(cluster: &Cluster, attempt: usize) -> Result<Client, RedisError> {
    let node = cluster.seeds.iter().cycle().nth(attempt % cluster.seeds.len().max(1));
    node.cloned().ok_or_else(|| (ErrorKind::InvalidClientConfig, "a cluster needs the address of a node").into())
}

/// Whether the server does not know how, or the user may not.
fn is_unable(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError | ServerErrorKind::NoPerm))
}
