//! All records, for operators.

use redis::Value;
use tokio::time::Instant;
use tower_tool_core::store::{Page, StoreError};

use crate::link::Node;
use crate::store::Shared;

impl Shared {
    /// The cursor is that of the server, and in a cluster the place of the master among all, in the order of their addresses.
    pub(crate) async fn scan(&self, after: Option<&str>, limit: usize) -> Result<Page, StoreError> {
        let strange = || StoreError::corrupt("a cursor that no page gave");
        let (mut at, mut cursor) = match after {
            None => (0, 0),
            Some(after) => {
                let (at, cursor) = after.split_once('-').ok_or_else(strange)?;
                (at.parse::<usize>().map_err(|_| strange())?, cursor.parse::<u64>().map_err(|_| strange())?)
            }
        };
        let masters = self.masters().await?;
        let mut names: Vec<String> = Vec::new();
        let next = loop {
            let node = match (masters.get(at), self.link.is_cluster()) {
                (Some((host, port)), true) => Node::At(host, *port),
                (None, true) => break None,
                (_, false) if at > 0 => break None,
                (_, false) => Node::Keys,
            };
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(self.names.all_records()).arg("COUNT").arg(limit.clamp(10, 1_000));
            let (then, found): (u64, Vec<String>) = self.link.command(&command, node, self.until()).await?;
            cursor = then;
            if cursor == 0 {
                at += 1;
            }
            names.extend(found);
            if names.len() >= limit.max(1) {
                let is_last = cursor == 0 && at >= masters.len().max(1);
                break (!is_last).then(|| format!("{at}-{cursor}"));
            }
        };
        names.sort_unstable();
        names.dedup();
        Ok(Page { records: self.by_names(names).await?, next })
    }

    /// The masters of a cluster; none where there is none.
    async fn masters(&self) -> Result<Vec<(String, u16)>, StoreError> {
        if !self.link.is_cluster() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let until = Instant::now() + self.link.timeout;
        let ranges: Vec<Vec<Value>> = self.link.command(&command, Node::MasterOf(""), until).await?;
        let mut masters: Vec<(String, u16)> = Vec::new();
        for range in ranges {
            // From, to, then the master, then its replicas.
            let master = range.into_iter().nth(2).ok_or_else(|| StoreError::unavailable("a slot without a master"))?;
            let (host, port) = match master {
                Value::Array(parts) => {
                    let mut parts = parts.into_iter();
                    let host = parts.next().map(redis::from_redis_value::<String>);
                    (host, parts.next().map(redis::from_redis_value::<u16>))
                }
                _ => (None, None),
            };
            let (Some(Ok(host)), Some(Ok(port))) = (host, port) else {
                return Err(StoreError::unavailable("a master without an address"));
            };
            masters.push((host, port));
        }
        masters.sort_unstable();
        masters.dedup();
        Ok(masters)
    }
}
