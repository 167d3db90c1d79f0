//! A cluster of servers of its own, which a test may take masters from.

use std::io;

use super::Wait;
use super::resp::Value;
use super::server::{Options, RedisServer};

/// How many slots a cluster has.
const SLOTS: usize = 16_384;
/// How long a node may be silent before the others take it for dead.
const NODE_TIMEOUT_MS: &str = "1000";

/// Masters that share all slots, each with its replicas.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts the nodes, forms a cluster of them, and waits until all of them say that it works.
    ///
    /// Node `i` is a master for each `i < masters`; its replicas are the nodes `i + masters`, `i + 2 * masters` and so on.
    ///
    /// # Errors
    ///
    /// If a node does not start, or the cluster does not come about in time.
    pub async fn start(masters: usize, replicas_each: usize) -> io::Result<Self> {
        Self::start_with(Options::new(), masters, replicas_each).await
    }

    /// As [`start`](Self::start), with every node started like this.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub async fn start_with(options: Options, masters: usize, replicas_each: usize) -> io::Result<Self> {
        let options = Options::new()
            .config("cluster-enabled", "yes")
            .config("cluster-config-file", "nodes.conf")
            .config("cluster-node-timeout", NODE_TIMEOUT_MS)
            // A replica may take over however old its data are.
            .config("cluster-replica-validity-factor", "0")
            .over(options);
        let mut cluster = Self { nodes: Vec::new() };
        for _ in 0..masters * (1 + replicas_each) {
            cluster.nodes.push(RedisServer::start(options.clone()).await?);
        }
        cluster.form(masters).await?;
        Ok(cluster)
    }

    async fn form(&self, masters: usize) -> io::Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            // Otherwise all begin with the same one and have to settle who gives way.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).await?;
            if index < masters {
                let slots = index * SLOTS / masters..(index + 1) * SLOTS / masters;
                let slots = slots.map(|slot| slot.to_string());
                let words: Vec<_> = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots).collect();
                node.command(&words).await?;
            }
        }
        // Everybody meets everybody, which is quicker than to wait for gossip.
        for node in &self.nodes {
            let (ip, port) = (node.address().ip().to_string(), node.address().port().to_string());
            for other in self.nodes.iter().filter(|other| other.address() < node.address()) {
                other.command(&["CLUSTER", "MEET", &ip, &port]).await?;
            }
        }
        let mut wait = Wait::new("the nodes to know each other");
        while wait.goes_on(self.is_acquainted().await).await? {}
        let (masters, replicas) = self.nodes.split_at_checked(masters).unwrap_or_default();
        for (master, replica) in masters.iter().cycle().zip(replicas) {
            let id = master.command(&["CLUSTER", "MYID"]).await?;
            let mut wait = Wait::new("a replica to know its master");
            while wait.goes_on(replica.command(&["CLUSTER", "REPLICATE", &id.text()]).await.map(|_| true)).await? {}
        }
        self.until_ok().await
    }

    /// Whether every node knows every other by the name that it gave itself.
    async fn is_acquainted(&self) -> io::Result<bool> {
        for node in &self.nodes {
            let known = cluster_info(node, "cluster_known_nodes").await?;
            let all = node.command(&["CLUSTER", "NODES"]).await?.text();
            if known != self.nodes.len().to_string() || all.contains("handshake") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The nodes, those that were killed too.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The nodes, to be killed and started again.
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// One node.
    ///
    /// # Errors
    ///
    /// If there are not so many.
    pub fn node(&self, index: usize) -> io::Result<&RedisServer> {
        self.nodes.get(index).ok_or_else(|| no_node(index))
    }

    /// One node, to be killed or started again.
    ///
    /// # Errors
    ///
    /// If there are not so many.
    pub fn node_mut(&mut self, index: usize) -> io::Result<&mut RedisServer> {
        self.nodes.get_mut(index).ok_or_else(|| no_node(index))
    }

    /// The addresses of all nodes as clients take them.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The nodes that run and are not paused.
    fn live(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running() && !node.is_paused())
    }

    /// Which node is the master of a key, as the live nodes say; an error while they do not agree.
    ///
    /// # Errors
    ///
    /// If no node knows one, or the nodes do not agree.
    pub async fn master_of(&self, key: &str) -> io::Result<usize> {
        let mut named = None;
        for node in self.live() {
            let port = owner(&node.command(&["CLUSTER", "SLOTS"]).await?, slot(key));
            let port = port.ok_or_else(|| io::Error::other(format!("nobody has the slot of `{key}`")))?;
            if named.replace(port).is_some_and(|before| before != port) {
                return Err(io::Error::other(format!("the nodes do not agree who has the slot of `{key}`")));
            }
        }
        let index = self.nodes.iter().position(|node| Some(i64::from(node.address().port())) == named);
        index.ok_or_else(|| io::Error::other(format!("no node has the slot of `{key}`")))
    }

    /// Kills the master of a key, and says which node it was.
    ///
    /// # Errors
    ///
    /// Those of [`master_of`](Self::master_of).
    pub async fn kill_master_of(&mut self, key: &str) -> io::Result<usize> {
        let index = self.master_of(key).await?;
        self.node_mut(index)?.kill();
        Ok(index)
    }

    /// Waits until another node than this one is the master of a key and the cluster works, and says which.
    ///
    /// # Errors
    ///
    /// If that does not come about in time.
    pub async fn until_failed_over(&self, key: &str, from: usize) -> io::Result<usize> {
        let mut wait = Wait::new("a failover");
        while wait.goes_on(self.master_of(key).await.map(|master| master != from)).await? {}
        self.until_ok().await?;
        self.master_of(key).await
    }

    /// Waits until every live node says that the cluster works, and every live replica is in sync.
    ///
    /// # Errors
    ///
    /// If that does not come about in time.
    pub async fn until_ok(&self) -> io::Result<()> {
        let mut wait = Wait::new("the cluster to work");
        while wait.goes_on(self.is_ok().await).await? {}
        Ok(())
    }

    async fn is_ok(&self) -> io::Result<bool> {
        for node in self.live() {
            if cluster_info(node, "cluster_state").await? != "ok" {
                return Ok(false);
            }
            let all = node.command(&["CLUSTER", "NODES"]).await?.text();
            let is_replica = all.lines().any(|line| line.contains("myself,slave"));
            if is_replica && node.info("master_link_status").await? != "up" {
                return Ok(false);
            }
        }
        self.agree_on_replicas().await
    }

    /// Whether every live node counts the same nodes as replicas: one that is not known to be one cannot take over.
    async fn agree_on_replicas(&self) -> io::Result<bool> {
        let mut named: Option<Vec<String>> = None;
        for node in self.live() {
            let all = node.command(&["CLUSTER", "NODES"]).await?.text();
            let is_replica = |line: &&str| line.split_whitespace().nth(2).is_some_and(|flags| flags.contains("slave"));
            let replicas = all.lines().filter(is_replica).filter_map(|line| line.split_whitespace().next());
            let mut replicas: Vec<_> = replicas.map(str::to_owned).collect();
            replicas.sort();
            if named.replace(replicas.clone()).is_some_and(|before| before != replicas) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn no_node(index: usize) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no node {index}"))
}

async fn cluster_info(node: &RedisServer, field: &str) -> io::Result<String> {
    let all = node.command(&["CLUSTER", "INFO"]).await?.text();
    let value = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned));
    value.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("`CLUSTER INFO` says nothing of `{field}`")))
}

/// The port of the master of a slot in an answer to `CLUSTER SLOTS`.
fn owner(slots: &Value, slot: u16) -> Option<i64> {
    slots.values().iter().find_map(|range| {
        let [from, to, master, ..] = range.values() else { return None };
        let is_here = (from.integer()?..=to.integer()?).contains(&i64::from(slot));
        is_here.then(|| master.values().get(1)?.integer()).flatten()
    })
}

/// The slot of a key: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>.
pub fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    // CRC16, XMODEM.
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_slot_of_the_specification() {
        assert_eq!(slot("123456789"), 0x31c3);
        assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
        assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
        assert_ne!(slot("foo{}{bar}"), slot("bar"));
        assert_eq!(slot("foo{}{bar}"), slot("foo{}{bar}"));
    }

    #[test]
    fn the_owner_is_who_has_the_range() {
        let node = |port| Value::Array(vec![Value::Bytes(b"127.0.0.1".to_vec()), Value::Integer(port)]);
        let range = |from, to, port| Value::Array(vec![Value::Integer(from), Value::Integer(to), node(port), node(9)]);
        let slots = Value::Array(vec![range(0, 99, 1), range(100, 16_383, 2)]);
        assert_eq!(owner(&slots, 99), Some(1));
        assert_eq!(owner(&slots, 100), Some(2));
        assert_eq!(owner(&Value::Array(Vec::new()), 0), None);
    }
}
