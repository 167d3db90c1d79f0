//! What lies between a client and a server, under the control of a test.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::PATIENCE;
use super::frames::{Frame, Frames};

/// How much is passed on at once.
const PIECE: usize = 16 * 1024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Direction {
    /// From the client to the server.
    Commands,
    /// From the server to the client.
    Replies,
}

/// What passed so far; what was swallowed, cut off or is still held is not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The names of the commands that the server was sent, in capitals and in order.
    pub commands: Vec<String>,
    /// How many replies the client was sent.
    pub replies: u64,
    /// How often a client sent a command while it owed itself no reply. Commands that are sent together count once.
    pub round_trips: u64,
    /// How many bytes the server was sent.
    pub command_bytes: u64,
    /// How many bytes the client was sent.
    pub reply_bytes: u64,
    /// How many connections clients made.
    pub connections: u64,
    /// How many connections were cut by [`Proxy::cut_after`].
    pub cuts: u64,
}

impl Traffic {
    /// How many of the commands have this name.
    pub fn count(&self, name: &str) -> usize {
        self.commands.iter().filter(|command| command.eq_ignore_ascii_case(name)).count()
    }
}

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    delay: Duration,
    is_held: bool,
    is_swallowed: bool,
    /// After how many bytes the connection is cut that carries them.
    cut: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Control {
    commands: Way,
    replies: Way,
    refuses: bool,
    /// Counts the times at which every connection was closed.
    closed: u64,
}

impl Control {
    fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::Commands => &self.commands,
            Direction::Replies => &self.replies,
        }
    }

    fn way_mut(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Commands => &mut self.commands,
            Direction::Replies => &mut self.replies,
        }
    }
}

/// A port that leads to a server. A drop closes it with all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The one task that owns all others.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    control: watch::Sender<Control>,
    traffic: watch::Sender<Traffic>,
}

impl Proxy {
    /// Listens on a free port, and leads to this address until it is told otherwise.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let control = watch::Sender::new(Control::default());
        let traffic = watch::Sender::new(Traffic::default());
        let shared = Arc::new(Shared { server, control, traffic });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as clients take it, for a server without a password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// What passed since the start or the last [`forget`](Self::forget).
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic.borrow().clone()
    }

    /// Begins to count anew.
    pub fn forget(&self) {
        self.shared.traffic.send_replace(Traffic::default());
    }

    /// Waits until what passed fulfils the condition.
    ///
    /// # Errors
    ///
    /// If it does not in time.
    pub async fn until(&self, what: &str, condition: impl FnMut(&Traffic) -> bool) -> io::Result<()> {
        let mut traffic = self.shared.traffic.subscribe();
        match timeout(PATIENCE, traffic.wait_for(condition)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                Err(io::Error::new(ErrorKind::TimedOut, format!("waited in vain for {what}: {:?}", self.traffic())))
            }
        }
    }

    /// Passes every piece on that much later. Pieces of one connection wait one after another.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(|control| control.way_mut(direction).delay = delay);
    }

    /// Keeps back whatever comes, until [`release`](Self::release).
    pub fn hold(&self, direction: Direction) {
        self.change(|control| control.way_mut(direction).is_held = true);
    }

    /// Passes on what was kept back, and what comes.
    pub fn release(&self, direction: Direction) {
        self.change(|control| control.way_mut(direction).is_held = false);
    }

    /// Throws away whatever comes, or no more.
    ///
    /// A connection on which anything was thrown away stays mute in that direction until it is closed: a reply that came
    /// later would be taken for the one that was lost.
    pub fn swallow(&self, direction: Direction, is_swallowed: bool) {
        self.change(|control| control.way_mut(direction).is_swallowed = is_swallowed);
    }

    /// Passes on that many more bytes, on whichever connections, then cuts the one that carries more. Does so once.
    ///
    /// With 0 the next byte cuts: a command is not run, or a reply is lost of a command that was. What was passed on to the
    /// server is run, however suddenly the client was cut off.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.change(|control| control.way_mut(direction).cut = Some(bytes));
    }

    /// Closes every connection now.
    pub fn close_all(&self) {
        self.change(|control| control.closed += 1);
    }

    /// Closes every new connection at once, or no more.
    pub fn refuse(&self, refuses: bool) {
        self.change(|control| control.refuses = refuses);
    }

    /// Undoes all of the above, but for connections that are closed or mute.
    pub fn heal(&self) {
        self.change(|control| *control = Control { closed: control.closed, ..Control::default() });
    }

    fn change(&self, change: impl FnOnce(&mut Control)) {
        self.shared.control.send_modify(change);
    }
}

/// Takes in clients for as long as the proxy lives, and ends with everything that belongs to them.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            client = listener.accept() => {
                let Ok((client, _)) = client else { continue };
                shared.traffic.send_modify(|traffic| traffic.connections += 1);
                if !shared.control.borrow().refuses {
                    connections.spawn(serve(client, Arc::clone(&shared)));
                }
            }
        }
    }
}

/// Why a connection is closed.
enum End {
    /// As one of its ends, or the test, wished.
    Closed,
    /// By the cut.
    Cut,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(shared.server).await else { return };
    // Small pieces are passed on as they come.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut client_reads, mut client_writes) = client.into_split();
    let (mut server_reads, mut server_writes) = server.into_split();
    let mut control = shared.control.subscribe();
    let closed = control.borrow_and_update().closed;
    let owed = Mutex::new(0);
    let commands = Pump::new(Direction::Commands, &shared, &owed).run(&mut client_reads, &mut server_writes);
    let replies = Pump::new(Direction::Replies, &shared, &owed).run(&mut server_reads, &mut client_writes);
    let end = tokio::select! {
        both = async { tokio::try_join!(commands, replies) } => both.err(),
        _ = control.wait_for(|control| control.closed != closed) => Some(End::Closed),
    };
    drop((client_reads, client_writes));
    if let Some(End::Cut) = end {
        shared.traffic.send_modify(|traffic| traffic.cuts += 1);
    }
    // A reset could overtake what the server was sent, so it is let finish, and what it answers goes nowhere.
    if server_writes.shutdown().await.is_ok() {
        let _ = copy(&mut server_reads, &mut sink()).await;
    }
}

/// One direction of one connection.
struct Pump<'a> {
    direction: Direction,
    shared: &'a Shared,
    control: watch::Receiver<Control>,
    frames: Frames,
    is_mute: bool,
    /// How many replies this connection waits for.
    owed: &'a Mutex<u64>,
}

impl<'a> Pump<'a> {
    fn new(direction: Direction, shared: &'a Shared, owed: &'a Mutex<u64>) -> Self {
        let control = shared.control.subscribe();
        Self { direction, shared, control, frames: Frames::default(), is_mute: false, owed }
    }

    /// Passes on what comes until it ends.
    async fn run(mut self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> Result<(), End> {
        let mut buffer = vec![0; PIECE];
        loop {
            let length = from.read(&mut buffer).await?;
            let came = Instant::now();
            let piece = buffer.get(..length).unwrap_or_default();
            if piece.is_empty() {
                self.until_free().await;
                to.shutdown().await?;
                return Ok(());
            }
            self.until_due(came).await;
            self.until_free().await;
            self.is_mute |= self.control.borrow().way(self.direction).is_swallowed;
            if self.is_mute {
                continue;
            }
            let (passes, is_cut) = self.spend(length);
            let piece = piece.get(..passes).unwrap_or_default();
            self.count(piece);
            to.write_all(piece).await?;
            if is_cut {
                return Err(End::Cut);
            }
        }
    }

    /// Waits until the delay is over, which may change meanwhile.
    async fn until_due(&mut self, came: Instant) {
        loop {
            let due = came + self.control.borrow_and_update().way(self.direction).delay;
            if timeout_at(due, self.control.changed()).await.is_err() {
                return;
            }
        }
    }

    async fn until_free(&mut self) {
        let direction = self.direction;
        // The sender lives as long as this does.
        let _ = self.control.wait_for(|control| !control.way(direction).is_held).await;
    }

    /// How many of these bytes may pass, and whether the connection is cut behind them.
    fn spend(&self, length: usize) -> (usize, bool) {
        let mut outcome = (length, false);
        self.shared.control.send_if_modified(|control| {
            let cut = &mut control.way_mut(self.direction).cut;
            let Some(left) = *cut else { return false };
            match left.checked_sub(length as u64) {
                Some(left) => *cut = Some(left),
                None => {
                    *cut = None;
                    // Less than a length is a length.
                    outcome = (usize::try_from(left).unwrap_or(length), true);
                }
            }
            // Nobody waits for that.
            false
        });
        outcome
    }

    /// Counts a piece before it is passed on, so that nobody sees its effect earlier.
    fn count(&mut self, piece: &[u8]) {
        let frames = self.frames.feed(piece);
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.traffic.send_modify(|traffic| {
            match self.direction {
                Direction::Commands => traffic.command_bytes += piece.len() as u64,
                Direction::Replies => traffic.reply_bytes += piece.len() as u64,
            }
            for frame in frames {
                match (self.direction, frame) {
                    (Direction::Commands, Frame::Whole(name)) => {
                        traffic.round_trips += u64::from(*owed == 0);
                        traffic.commands.push(name);
                        *owed += 1;
                    }
                    (Direction::Replies, Frame::Whole(_)) => {
                        traffic.replies += 1;
                        *owed = owed.saturating_sub(1);
                    }
                    (_, Frame::Push) => {}
                }
            }
        });
    }
}
