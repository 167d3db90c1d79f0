//! A master with replicas, and sentinels that name another master when it is gone.

use std::io;

use super::Wait;
use super::server::{Options, RedisServer};

/// How long a server may be silent before a sentinel takes it for dead, and how long a failover may take.
const DOWN_AFTER_MS: &str = "1000";
const FAILOVER_TIMEOUT_MS: &str = "10000";

/// Servers of one data set and the sentinels that watch them.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinels {
    /// The name of the data set, which clients ask the sentinels for.
    pub const NAME: &str = "main";

    /// Starts a master, its replicas and the sentinels, and waits until every sentinel knows all of them.
    ///
    /// # Errors
    ///
    /// If a server does not start, or the sentinels do not come to know each other in time.
    pub async fn start(replicas: usize, sentinels: usize) -> io::Result<Self> {
        Self::start_with(Options::new(), replicas, sentinels).await
    }

    /// As [`start`](Self::start), with every server of data started like this; it must not ask for a password.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub async fn start_with(options: Options, replicas: usize, sentinels: usize) -> io::Result<Self> {
        let master = RedisServer::start(options.clone()).await?;
        let address = master.address();
        let mut all = Self { servers: vec![master], sentinels: Vec::new() };
        for _ in 0..replicas {
            let options = options.clone().config("replicaof", format!("{} {}", address.ip(), address.port()));
            let replica = RedisServer::start(options).await?;
            replica.until_in_sync().await?;
            all.servers.push(replica);
        }
        let quorum = sentinels / 2 + 1;
        let name = Self::NAME;
        let options = options
            .sentinel()
            .config("sentinel", format!("monitor {name} {} {} {quorum}", address.ip(), address.port()))
            .config("sentinel", format!("down-after-milliseconds {name} {DOWN_AFTER_MS}"))
            .config("sentinel", format!("failover-timeout {name} {FAILOVER_TIMEOUT_MS}"));
        for _ in 0..sentinels {
            all.sentinels.push(RedisServer::start(options.clone()).await?);
        }
        let mut wait = Wait::new("the sentinels to know everybody");
        while wait.goes_on(all.is_acquainted().await).await? {}
        Ok(all)
    }

    async fn is_acquainted(&self) -> io::Result<bool> {
        for sentinel in &self.sentinels {
            let others = sentinel.command(&["SENTINEL", "SENTINELS", Self::NAME]).await?.values().len();
            let replicas = sentinel.command(&["SENTINEL", "REPLICAS", Self::NAME]).await?;
            // One that was not asked yet what it is cannot be chosen.
            let is_linked = |replica: &super::Value| replica.text().contains("master-link-status ok");
            let linked = replicas.values().iter().filter(|replica| is_linked(replica)).count();
            if (others + 1, linked + 1) != (self.sentinels.len(), self.servers.len()) {
                return Ok(false);
            }
            sentinel.command(&["SENTINEL", "CKQUORUM", Self::NAME]).await?;
        }
        Ok(true)
    }

    /// The servers of data: the first master, then its replicas.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The same, to be killed and started again.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The same, to be killed and started again.
    pub fn sentinels_mut(&mut self) -> &mut [RedisServer] {
        &mut self.sentinels
    }

    /// The addresses of the sentinels as clients take them.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// Which server is the master, as the running sentinels say; an error while they do not agree.
    ///
    /// # Errors
    ///
    /// If a sentinel does not know one, or they do not agree.
    pub async fn master(&self) -> io::Result<usize> {
        let mut named = None;
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running() && !sentinel.is_paused()) {
            let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME]).await?.text();
            if named.replace(address.clone()).is_some_and(|before| before != address) {
                return Err(io::Error::other("the sentinels do not agree on the master"));
            }
        }
        let named = named.unwrap_or_default();
        let is_named = |server: &RedisServer| named == format!("{} {}", server.address().ip(), server.address().port());
        self.servers.iter().position(is_named).ok_or_else(|| io::Error::other("no server is the master"))
    }

    /// Kills the master, and says which server it was.
    ///
    /// # Errors
    ///
    /// Those of [`master`](Self::master).
    pub async fn kill_master(&mut self) -> io::Result<usize> {
        let index = self.master().await?;
        if let Some(master) = self.servers.get_mut(index) {
            master.kill();
        }
        Ok(index)
    }

    /// Waits until another server than this one is the master and knows it, and says which.
    ///
    /// # Errors
    ///
    /// If that does not come about in time.
    pub async fn until_failed_over(&self, from: usize) -> io::Result<usize> {
        let mut wait = Wait::new("a failover");
        while wait.goes_on(self.has_failed_over(from).await).await? {}
        self.master().await
    }

    async fn has_failed_over(&self, from: usize) -> io::Result<bool> {
        let index = self.master().await?;
        match self.servers.get(index).filter(|_| index != from) {
            Some(master) => Ok(master.info("role").await? == "master"),
            None => Ok(false),
        }
    }
}
