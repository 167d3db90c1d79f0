//! Waiting until replicas have what was written.

use tokio::time::Instant;
use tower_tool_core::store::StoreError;

use crate::keys::RecordNames;
use crate::link::Node;
use crate::store::Shared;
use crate::time::millis;

impl Shared {
    /// Waits for replicas. A server counts those that have the last write of the very connection that asks. Where that is not
    /// known to be the one of the swap, the record is looked for and something is written first: another server, or one that
    /// took over, counts for nothing where the record is not.
    pub(crate) async fn replicated(
        &self,
        names: &RecordNames,
        nonce: Option<&str>,
        replicas: u32,
        swapped: Option<u64>,
    ) -> Result<(), StoreError> {
        let (until, record) = (self.until(), names.record.as_str());
        let wait = || {
            let left = until.saturating_duration_since(Instant::now()) * 9 / 10;
            // Zero would be for ever.
            redis::cmd("WAIT").arg(replicas).arg(millis(left).max(1)).clone()
        };
        let mut acknowledged = None;
        if swapped.is_some() && !self.link.is_cluster() {
            let answer = self.link.answer(&wait(), Node::Keys, until).await?;
            acknowledged = (swapped == Some(answer.connection)).then_some(answer.value);
        }
        if acknowledged.is_none() {
            let mut commands = redis::pipe();
            commands.cmd("HGET").arg(record).arg("n");
            commands.cmd("SET").arg(&names.fence).arg(1).arg("PX").arg(1_000);
            commands.add_command(wait());
            let mut answers = self.link.together(commands, record, until).await?;
            acknowledged = answers.pop();
            let there: Option<String> =
                answers.into_iter().next().and_then(|nonce| redis::from_redis_value(nonce).ok());
            if there.as_deref() != nonce {
                return Err(StoreError::unavailable("written, but it is not known which replicas have it"));
            }
        }
        let acknowledged =
            acknowledged.map(redis::from_redis_value::<u32>).transpose().map_err(StoreError::unavailable)?;
        match acknowledged.unwrap_or_default() {
            enough if enough >= replicas => Ok(()),
            few => Err(StoreError::unavailable(format!("written, but only {few} of {replicas} replicas have it"))),
        }
    }
}
