//! One connection for all calls, and a task that makes another where it was lost.
//!
//! Whoever needs a connection waits for it as long as it has time, and does not take the attempt away with it when it leaves: an
//! attempt may take longer than any call does.
//!
//! In a cluster a lost node is no reason to take the others away from whoever asks them. The connection that is in doubt is used
//! until the next is there.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// How long an attempt may take, if calls may not take longer.
const LONGEST_TRY: Duration = Duration::from_secs(10);

/// Between two attempts after a first that failed. Each further one that fails doubles it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Between two attempts at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Between two connections to a cluster: each is one to every node.
const CLUSTER_PAUSE: Duration = Duration::from_millis(250);

/// Where servers are.
pub(crate) enum Source {
    Single(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
    Cluster(Box<Cluster>),
}

/// Where the nodes of a cluster are.
pub(crate) struct Cluster {
    pub(crate) client: ClusterClient,
    /// Listens to what is announced in a slot.
    pub(crate) ears: ClusterClient,
    pub(crate) seeds: Vec<Client>,
}

#[derive(Clone)]
pub(crate) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

#[derive(Default)]
struct State {
    /// Connections have numbers, from 1.
    number: u64,
    connection: Option<Connection>,
    /// Whether another is wanted, though this one is still used.
    is_doubtful: bool,
    is_connecting: bool,
    /// When the last attempt ended, and how many failed since one did not.
    ended: Option<Instant>,
    in_vain: u32,
    /// How many failed in all, and why the last did.
    failures: u64,
    error: Option<RedisError>,
}

struct Shared {
    source: Source,
    timeout: Duration,
    states: watch::Sender<State>,
}

/// Has the connection, or makes it.
pub(crate) struct Connector {
    shared: Arc<Shared>,
    /// The attempt that is under way. Ends with the store.
    attempt: StdMutex<JoinSet<()>>,
}

impl Connector {
    pub(crate) fn new(source: Source, timeout: Duration) -> Self {
        let shared = Shared { source, timeout, states: watch::Sender::new(State::default()) };
        Self { shared: Arc::new(shared), attempt: StdMutex::default() }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.shared.source
    }

    /// The connection and its number.
    pub(crate) async fn connection(&self) -> Result<(u64, Connection), RedisError> {
        if let Some(connection) = self.shared.states.borrow().connection() {
            return Ok(connection);
        }
        let mut states = self.shared.states.subscribe();
        let failures = states.borrow_and_update().failures;
        loop {
            self.renew();
            {
                let state = states.borrow_and_update();
                if let Some(connection) = state.connection() {
                    return Ok(connection);
                }
                if state.failures > failures {
                    return Err(state.error.clone().unwrap_or_else(ended_early));
                }
            }
            if states.changed().await.is_err() {
                return Err(ended_early());
            }
        }
    }

    /// Nobody is given this connection any more once there is another.
    pub(crate) fn give_up(&self, number: u64) {
        let is_cluster = matches!(self.shared.source, Source::Cluster(_));
        let is_given_up = self.shared.states.send_if_modified(|state| {
            let is_current = state.number == number && state.connection.is_some();
            if is_current && is_cluster {
                state.is_doubtful = true;
            } else if is_current {
                state.connection = None;
            }
            is_current
        });
        if is_given_up {
            self.renew();
        }
    }

    /// Has an attempt made, if one is due and none is under way.
    fn renew(&self) {
        let mut is_due = false;
        self.shared.states.send_if_modified(|state| {
            is_due = !state.is_connecting && (state.is_doubtful || state.connection.is_none());
            state.is_connecting |= is_due;
            false
        });
        if is_due {
            let attempt = Attempt { shared: Arc::clone(&self.shared), outcome: Err(ended_early()) };
            let mut tasks = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(attempt.make());
        }
    }
}

impl State {
    fn connection(&self) -> Option<(u64, Connection)> {
        self.connection.clone().map(|connection| (self.number, connection))
    }

    fn may_begin(&self, source: &Source) -> Option<Instant> {
        let doubled = SHORTEST_PAUSE.saturating_mul(1 << self.in_vain.min(8));
        let pause = if self.in_vain > 0 { doubled.min(LONGEST_PAUSE) } else { Duration::ZERO };
        let least = if matches!(source, Source::Cluster(_)) { CLUSTER_PAUSE } else { Duration::ZERO };
        Some(self.ended? + pause.max(least))
    }
}

/// An attempt to connect. What becomes of it is told when it is dropped, so that nobody waits for one that was taken away with
/// its runtime.
struct Attempt {
    shared: Arc<Shared>,
    outcome: Result<Connection, RedisError>,
}

impl Attempt {
    async fn make(mut self) {
        let may_begin = self.shared.states.borrow().may_begin(&self.shared.source);
        if let Some(moment) = may_begin {
            sleep_until(moment).await;
        }
        self.outcome = match timeout(LONGEST_TRY.max(self.shared.timeout), self.shared.connect()).await {
            Ok(outcome) => outcome,
            Err(_) => Err((ErrorKind::Io, "no connection came about in time").into()),
        };
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Err(ended_early()));
        self.shared.states.send_modify(|state| {
            (state.is_connecting, state.ended) = (false, Some(Instant::now()));
            match outcome {
                Ok(connection) => {
                    state.number += 1;
                    (state.connection, state.is_doubtful) = (Some(connection), false);
                    (state.in_vain, state.error) = (0, None);
                }
                Err(error) => {
                    state.in_vain = state.in_vain.saturating_add(1);
                    state.failures += 1;
                    state.error = Some(error);
                }
            }
        });
    }
}

impl Shared {
    async fn connect(&self) -> Result<Connection, RedisError> {
        let client = match &self.source {
            Source::Single(client) => Client::clone(client),
            Source::Sentinel(sentinel) => sentinel.lock().await.async_get_client().await?,
            Source::Cluster(cluster) => return Ok(Connection::Cluster(cluster.client.get_async_connection().await?)),
        };
        // Time is kept for every command by who sends it, so that who gave up is known.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(self.timeout)).set_response_timeout(None);
        Ok(Connection::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
    }
}

fn ended_early() -> RedisError {
    (ErrorKind::Io, "the attempt to connect ended early").into()
}
