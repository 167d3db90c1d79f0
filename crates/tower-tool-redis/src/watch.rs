//! Who waits, and what wakes them.
//!
//! One connection listens for all that is waited for here. What it does not hear while it is away is seen by looking again.

use std::collections::HashMap;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ears::{Ears, Heard};
use crate::link::Link;

/// How long an attempt to connect may take.
const LONGEST_TRY: Duration = Duration::from_secs(10);

/// How long the listener waits before it connects again, doubled with every attempt that failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// How long the listener waits before it connects again, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// For so long a connection is not taken for deaf.
const YOUNG: Duration = Duration::from_secs(5);

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
    /// Something was seen that was not heard: the connection may be deaf, as one is that somebody in between forgot.
    Doubt,
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

    /// Something was seen that was not heard.
    pub(crate) fn doubt(&self) {
        let _ = self.orders.send(Order::Doubt);
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
    let (mut attempt, mut in_vain) = (0_usize, 0_u32);
    loop {
        // Nobody needs a connection before somebody waits.
        let Some(first) = orders.recv().await else { return };
        let Some((mut name, mut done)) = act_offline(first, &channels) else { continue };
        loop {
            let opened = timeout(LONGEST_TRY, Ears::open(link.source(), link.timeout, attempt, &name)).await;
            attempt = attempt.wrapping_add(1);
            if let Ok(Ok(mut ears)) = opened {
                in_vain = 0;
                if serve(&mut ears, &channels, &mut orders, done).await.is_none() {
                    return;
                }
            } else {
                in_vain = in_vain.saturating_add(1);
                drop(done);
            }
            // It is not known what was missed.
            let others = {
                let channels = lock(&channels);
                wake_all(&channels);
                channels.keys().next().cloned()
            };
            let Some(other) = others else { break };
            (name, done) = (other, oneshot::channel().0);
            sleep_until(Instant::now() + LONGEST_PAUSE.min(SHORTEST_PAUSE * 2_u32.saturating_pow(in_vain))).await;
        }
    }
}

fn wake_all(channels: &HashMap<String, Channel>) {
    for channel in channels.values() {
        channel.wakes.notify_waiters();
    }
}

/// What is left to do where there is no connection.
fn act_offline(order: Order, channels: &Channels) -> Option<(String, oneshot::Sender<()>)> {
    match order {
        Order::Listen(name, done) if lock(channels).contains_key(&name) => Some((name, done)),
        Order::Listen(..) | Order::Leave(_) | Order::Doubt => None,
    }
}

/// Listens until the connection is lost; `None` once the store is gone.
async fn serve(
    ears: &mut Ears,
    channels: &Channels,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    first: oneshot::Sender<()>,
) -> Option<()> {
    let begun = Instant::now();
    let names: Vec<_> = lock(channels).keys().cloned().collect();
    if !names.is_empty() && ears.listen(&names).await.is_err() {
        return Some(());
    }
    // What was missed before.
    wake_all(&lock(channels));
    drop(first);
    loop {
        tokio::select! {
            heard = ears.heard() => match heard {
                None => return Some(()),
                Some(Heard::Gap) => wake_all(&lock(channels)),
                Some(Heard::At(name)) => wake(channels, &name),
                Some(Heard::Dropped(name)) => {
                    if lock(channels).contains_key(&name) && ears.listen(slice::from_ref(&name)).await.is_err() {
                        return Some(());
                    }
                    wake(channels, &name);
                }
            },
            order = orders.recv() => match order? {
                // One that was just made hears; what was missed was missed before.
                Order::Doubt if begun.elapsed() < YOUNG => {}
                Order::Doubt => return Some(()),
                order => if obey(ears, channels, order).await.is_err() {
                    return Some(());
                },
            }
        }
    }
}

fn wake(channels: &Channels, name: &str) {
    if let Some(channel) = lock(channels).get(name) {
        channel.wakes.notify_waiters();
    }
}

async fn obey(ears: &mut Ears, channels: &Channels, order: Order) -> Result<(), RedisError> {
    match order {
        Order::Listen(name, done) => {
            ears.listen(slice::from_ref(&name)).await?;
            // Nobody to be told any more is all right.
            let _ = done.send(());
        }
        Order::Leave(name) => {
            let is_left = !lock(channels).contains_key(&name);
            if is_left {
                ears.leave(&name).await?;
            }
        }
        Order::Doubt => {}
    }
    Ok(())
}
