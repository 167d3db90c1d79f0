//! Compare-and-swap, and how it ended where the reply was lost.
//!
//! A swap carries a deadline in the server's time, and is refused by the script once that is over. So whoever lost its reply
//! needs to look again only until then: what is not there when the deadline is over never will be.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower_tool_core::store::{Record, RecordKey, Revision, State, StoreError, Swap};

use crate::codec::{Encoded, Reply};
use crate::doubt::UnderWay;
use crate::keys::{CardNames, RecordNames};
use crate::link::{Failure, Why};
use crate::scripts::{LIST, SWAP};
use crate::store::Shared;
use crate::time::millis;

/// Between two looks at a record.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// A swap with all that its commands carry.
struct Job<'a> {
    key: &'a RecordKey,
    names: &'a RecordNames,
    cards: CardNames,
    expected: String,
    next: Option<Arc<Record>>,
    encoded: Encoded,
    nonce: String,
    forget: String,
    approvals: String,
    executions: String,
    present: String,
    created: String,
    is_open: bool,
}

/// What is known after a command.
enum Step {
    /// How, the cards that the record before had, and the connection that was answered on.
    Ended(Swap, String, Option<u64>),
    /// It was not made, and will not be.
    Again(StoreError),
}

fn listed(ids: impl Iterator<Item = impl ToString>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(" ")
}

impl Shared {
    pub(crate) async fn swap(
        &self,
        key: &RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Result<Swap, StoreError> {
        let until = Instant::now() + self.link.timeout;
        let names = self.names.record(key);
        if self.doubts.are_there(&names.record) {
            self.find(key, &names, until).await?;
        }
        let number = self.number();
        let job = self.job(key, &names, expected, next, number)?;
        if self.is_listed_first(&job) {
            self.list(&job, "", &job.approvals, true, until).await?;
        }
        let under_way = self.doubts.follow(&names.record, number);
        loop {
            match self.attempt(&job, &under_way, until).await? {
                Step::Ended(swap, before, on) => return self.concluded(&job, swap, &before, on, until).await,
                Step::Again(error) if Instant::now() >= until => return Err(error),
                Step::Again(_) => {}
            }
        }
    }

    /// In a cluster a card is listed before it is there, so that none is ever there that nobody finds. All others were.
    fn is_listed_first(&self, job: &Job<'_>) -> bool {
        self.link.is_cluster() && job.is_open
    }

    fn job<'a>(
        &self,
        key: &'a RecordKey,
        names: &'a RecordNames,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
        number: u64,
    ) -> Result<Job<'a>, StoreError> {
        let next = next.map(|next| match next.body() {
            Some(body) if body.bytes() > self.limits.result_bytes() => Arc::new(next.without_body()),
            _ => next,
        });
        let encoded = next.as_deref().map(|next| self.codec.encode(&names.record, next)).transpose()?;
        let record = next.as_deref();
        let card = record.and_then(|record| record.approval.as_ref());
        Ok(Job {
            key,
            names,
            cards: self.names.cards(&key.tenant),
            expected: expected.map(|revision| revision.to_string()).unwrap_or_default(),
            encoded: encoded.unwrap_or_default(),
            nonce: format!("{}-{number}", self.nonce),
            forget: record.and_then(Record::forget_at).map(|at| at.as_millis().to_string()).unwrap_or_default(),
            approvals: record.map(|record| listed(record.approval_ids())).unwrap_or_default(),
            executions: record.map(|record| listed(record.execution_ids())).unwrap_or_default(),
            present: card.map(|card| card.id.to_string()).unwrap_or_default(),
            created: card.map(|card| card.created_at.as_millis().to_string()).unwrap_or_default(),
            is_open: record.is_some_and(|record| record.state == State::Pending),
            next,
        })
    }

    /// Sends the swap once, and finds out what became of it.
    async fn attempt(&self, job: &Job<'_>, under_way: &UnderWay<'_>, until: Instant) -> Result<Step, StoreError> {
        let guess = self.time.estimate();
        // Half of the time is for it to be made, the other half to find out.
        let deadline = guess.saturating_add(millis(self.link.timeout / 2).max(1));
        let cap = self.limits.per_scope();
        let texts = [guess.to_string(), deadline.to_string(), cap.count.to_string(), cap.bytes.to_string()];
        let [guess_text, deadline_text, count, bytes] = &texts;
        let Encoded { revision, value, seal, body, body_seal } = &job.encoded;
        let arguments: [&[u8]; 23] = [
            job.expected.as_bytes(),
            revision.as_bytes(),
            deadline_text.as_bytes(),
            guess_text.as_bytes(),
            value,
            seal.as_bytes(),
            body,
            body_seal.as_bytes(),
            job.forget.as_bytes(),
            job.names.member.as_bytes(),
            job.names.actor.as_bytes(),
            job.executions.as_bytes(),
            job.nonce.as_bytes(),
            count.as_bytes(),
            bytes.as_bytes(),
            job.names.channel.as_bytes(),
            if self.link.is_cluster() { b"1" } else { b"0" },
            job.approvals.as_bytes(),
            job.present.as_bytes(),
            job.created.as_bytes(),
            if job.is_open { b"1" } else { b"0" },
            job.names.locator.as_bytes(),
            job.cards.channel.as_bytes(),
        ];
        let mut keys = job.names.slot.to_vec();
        if !self.link.is_cluster() {
            keys.extend(job.cards.slot.iter().cloned());
        }
        let ends = Instant::now() + self.link.timeout;
        let sent = |connection| under_way.sent(connection, deadline, ends);
        let answer = match self.link.run(&SWAP, &keys, &arguments, until, sent).await {
            Ok(answer) => answer,
            Err(Failure { why: Why::Lost, error }) => return self.looked_up(job, under_way, deadline, error).await,
            Err(Failure { why: Why::NotSent, error }) => return Err(error),
            Err(Failure { why: Why::Refused | Why::Strange, error }) => {
                if self.link.is_cluster() {
                    return self.refused(job, error, until).await;
                }
                under_way.answered();
                return Err(error);
            }
        };
        let (sent, on) = (answer.sent, Some(answer.connection));
        let reply = Reply::read(answer.value)?;
        self.learn(&reply, sent);
        under_way.answered();
        match reply.status.as_str() {
            "won" => {
                let won = match (&job.next, &reply.found) {
                    (Some(next), _) => Arc::clone(next),
                    (None, Some(found)) => self.codec.decode(&job.names.record, Some(job.key), found)?,
                    (None, None) => return Ok(Step::Ended(Swap::Lost(None), String::new(), on)),
                };
                Ok(Step::Ended(Swap::Won(won), reply.rest, on))
            }
            // If it is this one after all, it was made on another connection.
            "lost" => Ok(Step::Ended(self.other(job, &reply)?, String::new(), None)),
            _ => Ok(Step::Again(StoreError::unavailable("the command was on its way for too long, and was not run"))),
        }
    }

    /// A cluster's client sends again what was lost on the way, and what was refused then may have been made before. If that
    /// cannot be seen now, the doubt is left to whoever asks next.
    async fn refused(&self, job: &Job<'_>, error: StoreError, until: Instant) -> Result<Step, StoreError> {
        let (reply, _) = self.look(job.names, until).await.map_err(|_| error.clone())?;
        match (&job.next, reply.found) {
            (Some(next), Some(found)) if found.nonce == job.nonce.as_bytes() => {
                Ok(Step::Ended(Swap::Won(Arc::clone(next)), String::new(), None))
            }
            _ => Err(error),
        }
    }

    /// What somebody else wrote, or this very swap, where its command was sent twice on the way.
    fn other(&self, job: &Job<'_>, reply: &Reply) -> Result<Swap, StoreError> {
        let Some(found) = &reply.found else { return Ok(Swap::Lost(None)) };
        match &job.next {
            Some(next) if found.nonce == job.nonce.as_bytes() => Ok(Swap::Won(Arc::clone(next))),
            _ => Ok(Swap::Lost(Some(self.codec.decode(&job.names.record, Some(job.key), found)?))),
        }
    }

    /// Looks what became of a swap without a reply, until it is there or cannot be any more.
    async fn looked_up(
        &self,
        job: &Job<'_>,
        under_way: &UnderWay<'_>,
        deadline: u64,
        error: StoreError,
    ) -> Result<Step, StoreError> {
        let until = Instant::now() + self.link.timeout;
        loop {
            match self.look(job.names, until).await {
                Ok((reply, _)) => {
                    let found = reply.found.as_ref().map(|found| found.revision.as_slice()).unwrap_or_default();
                    let is_over = reply.certain && reply.now > deadline;
                    if is_over {
                        under_way.answered();
                    }
                    if found != job.expected.as_bytes() {
                        // What was there before is not any more, so this cannot be made any more either; or it was.
                        return Ok(Step::Ended(self.other(job, &reply)?, String::new(), None));
                    }
                    if is_over {
                        return Ok(Step::Again(error));
                    }
                }
                Err(failure) if Instant::now() >= until => return Err(failure),
                Err(_) => {}
            }
            let next = Instant::now() + PAUSE;
            if next >= until {
                return Err(error);
            }
            sleep_until(next).await;
        }
    }

    /// What is due after a swap: cards that have a slot of their own, and replicas.
    async fn concluded(
        &self,
        job: &Job<'_>,
        swap: Swap,
        before: &str,
        on: Option<u64>,
        until: Instant,
    ) -> Result<Swap, StoreError> {
        if self.link.is_cluster() {
            let listed = match &swap {
                Swap::Won(_) if before.is_empty() && job.approvals.is_empty() => Ok(()),
                Swap::Won(_) => self.list(job, before, &job.approvals, false, until).await,
                Swap::Lost(_) if !self.is_listed_first(job) => Ok(()),
                // What was listed in advance, unless the other has it too.
                Swap::Lost(other) => {
                    let other: Vec<_> =
                        other.iter().flat_map(|other| other.approval_ids()).map(|id| id.to_string()).collect();
                    let gone = job.approvals.split(' ').filter(|id| other.iter().all(|other| other != id));
                    self.list(job, &listed(gone), "", false, until).await
                }
            };
            if let Err(error) = listed {
                // It was made. The list is checked when it is read, and right again with the next change.
                tracing::warn!(error = &error as &dyn std::error::Error, "the cards of a tenant could not be listed");
            }
        }
        if let (Swap::Won(_), Some(replicas)) = (&swap, self.wait_replicas) {
            self.replicated(job.names, job.next.as_ref().map(|_| &*job.nonce), replicas.get(), on).await?;
        }
        Ok(swap)
    }

    /// Lists cards in the slot of their tenant. In advance, it only adds.
    async fn list(
        &self,
        job: &Job<'_>,
        before: &str,
        after: &str,
        in_advance: bool,
        until: Instant,
    ) -> Result<(), StoreError> {
        let guess = self.time.estimate().to_string();
        let forget = if job.forget.is_empty() { "+inf" } else { &job.forget };
        let open = match (job.is_open, in_advance) {
            (true, _) => "1",
            (false, true) => "",
            (false, false) => "0",
        };
        let arguments =
            [&guess, before, after, &job.present, &job.created, open, &job.names.locator, forget, &job.cards.channel]
                .map(str::as_bytes);
        let answer = self.link.run(&LIST, &job.cards.slot, &arguments, until, |_| {}).await;
        answer.map(|_| ()).map_err(|failure| failure.error)
    }
}
