//! Questions.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, sleep_until};
use tower_tool_core::store::{Record, RecordKey, State, StoreError};
use tower_tool_core::{ApprovalId, ExecutionId};

use crate::codec::Reply;
use crate::keys::{RecordNames, in_session, of_actor, of_tenant};
use crate::link::{Answer, Failure, Node, Why};
use crate::scripts::GET;
use crate::store::Shared;
use crate::swap::PAUSE;

/// How many records are read at once.
const AT_ONCE: usize = 32;

/// How many entries of a list are read at once.
const PAGE: usize = 256;

impl Shared {
    /// Reads what is there now.
    pub(crate) async fn look(&self, names: &RecordNames, until: Instant) -> Result<(Reply, Answer), StoreError> {
        let keys = [names.record.clone(), names.bodies().to_owned()];
        let guess = self.time.estimate().to_string();
        let arguments = [guess.as_bytes(), names.member.as_bytes()];
        let ran = self.link.run(&GET, &keys, &arguments, until, |_| {}).await;
        let mut answer = ran.map_err(|Failure { why, error }| match why {
            Why::Strange => StoreError::corrupt(format!("`{}`: what is there is no record", names.record)),
            Why::NotSent | Why::Refused | Why::Lost => error,
        })?;
        let reply = Reply::read(std::mem::take(&mut answer.value))?;
        self.learn(&reply, answer.sent);
        Ok((reply, answer))
    }

    /// Reads a record, once no swap can be made any more that was left without an answer.
    pub(crate) async fn find(
        &self,
        key: &RecordKey,
        names: &RecordNames,
        until: Instant,
    ) -> Result<Option<Arc<Record>>, StoreError> {
        loop {
            let (reply, answer) = self.look(names, until).await?;
            // Without the server's own time, the estimate is all there is to go by.
            if !self.doubts.are_left(&names.record, reply.now, &answer, !self.link.is_cluster()) {
                return reply.found.map(|found| self.codec.decode(&names.record, Some(key), &found)).transpose();
            }
            let next = Instant::now() + PAUSE;
            if next >= until {
                return Err(StoreError::unavailable("it is not known yet what became of a command"));
            }
            sleep_until(next).await;
        }
    }

    pub(crate) async fn get(&self, key: &RecordKey) -> Result<Option<Arc<Record>>, StoreError> {
        self.find(key, &self.names.record(key), self.until()).await
    }

    pub(crate) async fn by_approval(&self, tenant: &str, id: ApprovalId) -> Result<Option<Arc<Record>>, StoreError> {
        let cards = self.names.cards(tenant);
        let Some((_, locator)) = self.card(cards.of(), id).await? else { return Ok(None) };
        let key = of_tenant(tenant, &locator).ok_or_else(|| strange(cards.of()))?;
        let record = self.get(&key).await?;
        Ok(record.filter(|record| record.approval_ids().any(|known| known == id)))
    }

    /// When the card was opened, zero if it is not the present one, and whose it is.
    async fn card(&self, of: &str, id: ApprovalId) -> Result<Option<(String, String)>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(of).arg(id.to_string());
        let entry: Option<String> = self.link.command(&command, Node::Keys, self.until()).await?;
        let split = |entry: String| {
            let (created, locator) = entry.split_once(' ').ok_or_else(|| strange(of))?;
            Ok((created.to_owned(), locator.to_owned()))
        };
        entry.map(split).transpose()
    }

    pub(crate) async fn by_execution(
        &self,
        tenant: &str,
        scope: &str,
        id: ExecutionId,
    ) -> Result<Option<Arc<Record>>, StoreError> {
        let executions = self.names.executions(tenant, scope);
        let mut command = redis::cmd("HGET");
        command.arg(&executions).arg(id.to_string());
        let member: Option<String> = self.link.command(&command, Node::Keys, self.until()).await?;
        let Some(member) = member else { return Ok(None) };
        let key = in_session(tenant, scope, &member).ok_or_else(|| strange(&executions))?;
        let record = self.get(&key).await?;
        Ok(record.filter(|record| record.execution_ids().any(|known| known == id)))
    }

    pub(crate) async fn pending(
        &self,
        tenant: &str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Result<Vec<Arc<Record>>, StoreError> {
        let cards = self.names.cards(tenant);
        // Where to go on from: a card that was replaced is none.
        let mut last = match after {
            Some(id) => {
                let card = self.card(cards.of(), id).await?;
                card.filter(|(created, _)| created != "0").map(|(created, _)| (created, id.to_string()))
            }
            None => None,
        };
        let mut pending = Vec::new();
        while pending.len() < limit {
            let entries = self.entries(cards.pending(), last.as_ref()).await?;
            let Some(newest) = entries.last() else { break };
            last = Some((newest.1.clone(), newest.0.clone()));
            let mut over = Vec::new();
            let mut records = stream::iter(entries)
                .map(|(id, _)| async move {
                    let id: ApprovalId = id.parse().map_err(StoreError::corrupt)?;
                    Ok::<_, StoreError>((id, self.by_approval(tenant, id).await?))
                })
                .buffered(AT_ONCE);
            while let Some(found) = records.next().await {
                match found? {
                    (id, Some(record)) if is_pending(&record, id) => pending.push(record),
                    (id, Some(_)) => over.push(id.to_string()),
                    // It may be that it is not written yet. If it never is, the entry has an end of its own.
                    (_, None) => {}
                }
                if pending.len() >= limit {
                    break;
                }
            }
            drop(records);
            self.unlist(cards.pending(), &over).await;
        }
        Ok(pending)
    }

    /// Takes cards off the list that are not pending any more, and so never will be again: whoever decided them could not.
    async fn unlist(&self, pending: &str, over: &[String]) {
        if !over.is_empty() {
            let mut command = redis::cmd("ZREM");
            command.arg(pending).arg(over);
            // If it cannot be now, the next who reads the list does.
            let _: Result<u64, _> = self.link.command(&command, Node::Keys, self.until()).await;
        }
    }

    /// Entries of a sorted set by score and name, after one of them.
    async fn entries(&self, set: &str, last: Option<&(String, String)>) -> Result<Vec<(String, String)>, StoreError> {
        let mut offset = 0;
        loop {
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(set).arg(last.map_or("-inf", |(score, _)| score)).arg("+inf");
            command.arg("WITHSCORES").arg("LIMIT").arg(offset).arg(PAGE);
            let all: Vec<(String, String)> = self.link.command(&command, Node::Keys, self.until()).await?;
            let is_last = all.len() < PAGE;
            let is_new =
                |(name, score): &(String, String)| last.is_none_or(|(at, before)| score != at || name > before);
            let new: Vec<_> = all.into_iter().filter(is_new).collect();
            // So many of the same moment that none of them is new.
            if is_last || !new.is_empty() {
                return Ok(new);
            }
            offset += PAGE;
        }
    }

    pub(crate) async fn in_scope(&self, tenant: &str, actor: &str, scope: &str) -> Result<Vec<RecordKey>, StoreError> {
        let name = self.names.actor(tenant, actor, scope);
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command.arg(&name).arg(format!("({}", self.time.estimate())).arg("+inf");
        let members: Vec<String> = self.link.command(&command, Node::Keys, self.until()).await?;
        members.iter().map(|member| of_actor(tenant, actor, scope, member).ok_or_else(|| strange(&name))).collect()
    }

    /// Reads records by their names alone. What is gone meanwhile is left out.
    pub(crate) async fn by_names(&self, names: Vec<String>) -> Result<Vec<Arc<Record>>, StoreError> {
        let read = async |name: String| {
            let mut command = redis::cmd("HMGET");
            command.arg(&name).arg(&["r", "v", "s"]);
            let parts: [Option<Vec<u8>>; 3] = self.link.command(&command, Node::Keys, self.until()).await?;
            let [Some(revision), value, seal] = parts else { return Ok(None) };
            let (value, seal) = (value.unwrap_or_default(), seal.unwrap_or_default());
            let found = crate::codec::Found { revision, value, seal, ..Default::default() };
            let record = self.codec.decode(&name, None, &found)?;
            if self.names.record(&record.key).record != name {
                return Err(StoreError::corrupt(format!("`{name}`: the record of another intent")));
            }
            match &record.state {
                State::Completed { .. } => self.get(&record.key).await,
                _ => Ok(Some(record)),
            }
        };
        let mut all = Vec::new();
        let mut records = stream::iter(names).map(read).buffered(AT_ONCE);
        while let Some(record) = records.next().await {
            all.extend(record?);
        }
        Ok(all)
    }
}

fn is_pending(record: &Record, id: ApprovalId) -> bool {
    record.state == State::Pending && record.approval.as_ref().is_some_and(|card| card.id == id)
}

fn strange(name: &str) -> StoreError {
    StoreError::corrupt(format!("`{name}`: an entry that names no record"))
}
