//! Who waits, and what wakes them.
//!
//! One connection listens for all that is waited for here. What it does not hear while it is away is seen by looking again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::RedisError;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::link::Link;

/// How long the listener waits before it connects again, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Channel {
    wakes: Arc<Notify>,
    waiting: usize,
}

type Channels = Arc<Mutex<HashMap<String, Channel>>>;

fn lock(channels: &Channels) -> MutexGuard<'_, HashMap<String, Channel>> {
    channels.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Order {
    /// Listen there, and say so once it is done.
    Listen(String, oneshot::Sender<()>),
    /// Nobody waits there any more.
    Leave(String),
}

/// Wakes those who wait in this process.
#[derive(Debug)]
pub(crate) struct Watch {
    channels: Channels,
    orders: mpsc::UnboundedSender<Order>,
    /// Ends with the store.
    _listener: JoinSet<()>,
}

/// Somebody who waits for a channel.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    watch: &'a Watch,
    name: &'a str,
    pub(crate) wakes: Arc<Notify>,
}

impl Watch {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let channels = Channels::default();
        let mut listener = JoinSet::new();
        listener.spawn(listen(link, Arc::clone(&channels), received));
        Self { channels, orders, _listener: listener }
    }

    /// Begins to listen, and returns when announcements come, or will not for now.
    pub(crate) async fn wait_for<'a>(&'a self, name: &'a str, patience: Duration) -> Waiter<'a> {
        let wakes = {
            let mut channels = lock(&self.channels);
            let channel = channels.entry(name.to_owned()).or_default();
            channel.waiting += 1;
            Arc::clone(&channel.wakes)
        };
        let waiter = Waiter { watch: self, name, wakes };
        let (done, is_done) = oneshot::channel();
        if self.orders.send(Order::Listen(name.to_owned(), done)).is_ok() {
            // If it is not, looking again has to do.
            let _ = timeout(patience, is_done).await;
        }
        waiter
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut channels = lock(&self.watch.channels);
        if let Some(channel) = channels.get_mut(self.name) {
            channel.waiting -= 1;
            if channel.waiting == 0 {
                channels.remove(self.name);
                let _ = self.watch.orders.send(Order::Leave(self.name.to_owned()));
            }
        }
    }
}

async fn listen(link: Arc<Link>, channels: Channels, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut attempt = 0_usize;
    loop {
        // Nobody needs a connection before somebody waits.
        let Some(first) = orders.recv().await else { return };
        let Some(mut order) = act_offline(first, &channels) else { continue };
        loop {
            let opened = timeout(link.timeout, link.announcements(attempt)).await;
            attempt += 1;
            if let Ok(Ok(connection)) = opened {
                let (mut sink, mut stream) = connection.split();
                if serve(&mut sink, &mut stream, &channels, &mut orders, order).await.is_none() {
                    return;
                }
            } else if let Order::Listen(_, done) = order {
                drop(done);
            }
            // It is not known what was missed.
            let others = {
                let channels = lock(&channels);
                channels.values().for_each(|channel| channel.wakes.notify_waiters());
                channels.keys().next().cloned()
            };
            let Some(name) = others else { break };
            order = Order::Listen(name, oneshot::channel().0);
            sleep_until(
                Instant::now() + LONGEST_PAUSE.min(Duration::from_millis(20) * u32::try_from(attempt).unwrap_or(50)),
            )
            .await;
        }
    }
}

/// What is left to do where there is no connection.
fn act_offline(order: Order, channels: &Channels) -> Option<Order> {
    match order {
        Order::Listen(name, done) if lock(channels).contains_key(&name) => Some(Order::Listen(name, done)),
        Order::Listen(..) | Order::Leave(_) => None,
    }
}

/// Listens until the connection is lost; `None` once the store is gone.
async fn serve(
    sink: &mut PubSubSink,
    stream: &mut PubSubStream,
    channels: &Channels,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    first: Order,
) -> Option<()> {
    let names: Vec<_> = lock(channels).keys().cloned().collect();
    for name in names {
        if sink.subscribe(&name).await.is_err() {
            return Some(());
        }
    }
    // What was missed before.
    lock(channels).values().for_each(|channel| channel.wakes.notify_waiters());
    drop(first);
    loop {
        tokio::select! {
            message = stream.next() => {
                let Some(message) = message else { return Some(()) };
                if let Some(channel) = lock(channels).get(message.get_channel_name()) {
                    channel.wakes.notify_waiters();
                }
            }
            order = orders.recv() => {
                if obey(sink, channels, order?).await.is_err() {
                    return Some(());
                }
            }
        }
    }
}

async fn obey(sink: &mut PubSubSink, channels: &Channels, order: Order) -> Result<(), RedisError> {
    match order {
        Order::Listen(name, done) => {
            sink.subscribe(&name).await?;
            // Nobody to be told any more is all right.
            let _ = done.send(());
        }
        Order::Leave(name) => {
            let is_left = !lock(channels).contains_key(&name);
            if is_left {
                sink.unsubscribe(&name).await?;
            }
        }
    }
    Ok(())
}
