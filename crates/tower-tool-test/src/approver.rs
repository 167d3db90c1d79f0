//! A person who decides by script.

use std::collections::{HashSet, VecDeque};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower_tool_core::store::{Approval, Decision, Desk, Door};
use tower_tool_core::{ApprovalId, ToolError};

use crate::watched::{Watched, expected};

/// What a [`ScriptedApprover`] does about a card.
///
/// ```
/// use std::time::Duration;
/// use tower_tool_test::Reply;
///
/// let slow_no = Reply::deny("the order is closed").after(Duration::from_secs(30));
/// # let _ = slow_no;
/// ```
#[derive(Clone, Debug)]
pub struct Reply {
    after: Duration,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Approve,
    Deny(String),
    Never,
    Race(String),
}

impl Reply {
    /// Says yes.
    pub fn approve() -> Self {
        Self::at_once(Act::Approve)
    }

    /// Says no.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::at_once(Act::Deny(reason.into()))
    }

    /// Says nothing.
    pub fn never() -> Self {
        Self::at_once(Act::Never)
    }

    /// Says yes, while a second person says no at the same moment.
    pub fn race(reason: impl Into<String>) -> Self {
        Self::at_once(Act::Race(reason.into()))
    }

    /// So much later after the card was seen.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after += delay;
        self
    }

    fn at_once(act: Act) -> Self {
        Self { after: Duration::ZERO, act }
    }
}

/// Decides the cards of a tenant by script, each once, over any [`Desk`].
///
/// The first card gets the first reply that was given to [`once`](Self::once), and so on; every further card gets the reply
/// that was given to [`always`](Self::always), which is to say nothing unless told otherwise.
///
/// ```
/// use std::sync::Arc;
/// use tower_tool_core::store::Desk;
/// use tower_tool_test::{Reply, ScriptedApprover};
///
/// async fn a_test(desk: Arc<dyn Desk>) {
///     let approver = ScriptedApprover::new(desk)
///         .once(Reply::deny("ask for less"))
///         .always(Reply::approve())
///         .spawn("acme");
///     // … calls that need an approval …
///     approver.until_decided(2).await;
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an approver decides nothing until it is spawned"]
pub struct ScriptedApprover {
    desk: Arc<dyn Desk>,
    by: Arc<str>,
    once: VecDeque<Reply>,
    always: Reply,
}

impl ScriptedApprover {
    /// Who else decides in a [`Reply::race`].
    pub const SECOND_PERSON: &'static str = "second-approver";

    /// Somebody at this desk, named `approver`.
    pub fn new(desk: Arc<dyn Desk>) -> Self {
        Self { desk, by: "approver".into(), once: VecDeque::new(), always: Reply::never() }
    }

    /// Decides in this name.
    pub fn by(mut self, name: impl Into<Arc<str>>) -> Self {
        self.by = name.into();
        self
    }

    /// Replies so to the next card that has no reply yet.
    pub fn once(mut self, reply: Reply) -> Self {
        self.once.push_back(reply);
        self
    }

    /// Replies so to all further cards.
    pub fn always(mut self, reply: Reply) -> Self {
        self.always = reply;
        self
    }

    /// Begins to decide the cards of `tenant`. Ends when what is returned is dropped.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    #[must_use = "the approver leaves when this is dropped"]
    pub fn spawn(self, tenant: impl Into<Arc<str>>) -> Approving {
        let log = Arc::new(Watched::new(Log::default()));
        let shift = Shift { desk: self.desk, tenant: tenant.into(), log: Arc::clone(&log) };
        let mut tasks = JoinSet::new();
        tasks.spawn(shift.work(self.by, self.once, self.always));
        Approving { log, _tasks: tasks }
    }
}

/// What a [`ScriptedApprover`] decided, and what came of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decided {
    /// The card.
    pub approval: ApprovalId,
    /// The decision.
    pub decision: Decision,
    /// What the desk said to it.
    pub outcome: Result<Approval, ToolError>,
}

#[derive(Debug, Default)]
struct Log {
    decided: Vec<Decided>,
    failure: Option<ToolError>,
}

/// A [`ScriptedApprover`] at work. It leaves when this is dropped.
#[derive(Debug)]
pub struct Approving {
    log: Arc<Watched<Log>>,
    _tasks: JoinSet<()>,
}

impl Approving {
    /// What was decided so far, in the order the desk answered.
    pub fn decided(&self) -> Vec<Decided> {
        self.log.quietly(|log| log.decided.clone())
    }

    /// Waits until so many decisions were answered by the desk, yes or no, accepted or not.
    ///
    /// # Panics
    ///
    /// When awaited: if the desk cannot be read; if a day passes, which under paused time is as soon as nothing else can
    /// happen; or outside a runtime with timers.
    #[track_caller]
    pub fn until_decided(&self, count: usize) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let wait = self.log.when(|log| match &log.failure {
                Some(error) => Some(Err(error.clone())),
                None => (log.decided.len() >= count).then_some(Ok(())),
            });
            if let Err(error) = expected(wait, "the decisions of an approver", at).await {
                panic!("the approver cannot read the desk: {error}, at {at}");
            }
        }
    }
}

#[derive(Clone)]
struct Shift {
    desk: Arc<dyn Desk>,
    tenant: Arc<str>,
    log: Arc<Watched<Log>>,
}

impl Shift {
    async fn work(self, by: Arc<str>, mut once: VecDeque<Reply>, always: Reply) {
        // Owned here, so that what is under way ends with the shift.
        let mut replies = JoinSet::new();
        let mut seen = HashSet::new();
        let mut at = 0;
        loop {
            match self.desk.pending(&self.tenant).await {
                Ok(cards) => {
                    for card in cards {
                        if seen.insert(card.id) {
                            let reply = once.pop_front().unwrap_or_else(|| always.clone());
                            replies.spawn(self.clone().reply(Arc::clone(&by), card, reply));
                        }
                    }
                }
                Err(error) => return self.fail(error),
            }
            at = match self.desk.changed(&self.tenant, at).await {
                Ok(at) => at,
                Err(error) => return self.fail(error),
            };
        }
    }

    fn fail(&self, error: ToolError) {
        self.log.update(|log| log.failure = Some(error));
    }

    async fn reply(self, by: Arc<str>, card: Approval, reply: Reply) {
        if !reply.after.is_zero() {
            #[expect(
                clippy::disallowed_methods,
                reason = "a person who thinks for a while is time that passes, not an event"
            )]
            tokio::time::sleep(reply.after).await;
        }
        match reply.act {
            Act::Approve => self.decide(&card, by, None).await,
            Act::Deny(reason) => self.decide(&card, by, Some(reason)).await,
            Act::Never => {}
            Act::Race(reason) => self.race(card, by, reason).await,
        }
    }

    async fn race(self, card: Approval, by: Arc<str>, reason: String) {
        let start = Arc::new(Barrier::new(2));
        let mut people = JoinSet::new();
        for (by, no) in [(by, None), (ScriptedApprover::SECOND_PERSON.into(), Some(reason))] {
            let (shift, card, start) = (self.clone(), card.clone(), Arc::clone(&start));
            people.spawn(async move {
                start.wait().await;
                shift.decide(&card, by, no).await;
            });
        }
        while people.join_next().await.is_some() {}
    }

    async fn decide(&self, card: &Approval, by: Arc<str>, no: Option<String>) {
        let door = Door::new("test");
        // What is shown is what will run.
        let hash = card.executed.hash;
        let mut decision = Decision::new(no.is_none(), by, door, hash, self.desk.now());
        if let Some(reason) = no {
            decision = decision.with_reason(reason);
        }
        let outcome = self.desk.decide(&self.tenant, card.id, decision.clone()).await;
        self.log.update(|log| {
            log.decided.push(Decided { approval: card.id, decision, outcome });
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tower_tool_core::store::{Arguments, Asker};
    use tower_tool_core::{BoxFuture, CallContext, Clock as _, Digest, Principal, Risk, Timestamp, ToolErrorKind};

    use super::*;
    use crate::{FakeClock, call};

    #[derive(Debug)]
    struct MemoryDesk {
        clock: FakeClock,
        cards: Watched<Cards>,
    }

    #[derive(Debug, Default)]
    struct Cards {
        at: u64,
        open: Vec<Approval>,
        reads: usize,
        broken: bool,
    }

    impl MemoryDesk {
        fn new() -> Arc<Self> {
            Arc::new(Self { clock: FakeClock::new(), cards: Watched::new(Cards::default()) })
        }

        fn open_for(&self, context: &CallContext) -> ApprovalId {
            let id = ApprovalId::random().unwrap();
            let arguments = Arguments::new(Arc::new(json!({})));
            let now = self.clock.now();
            let card = Approval::new(
                id,
                Asker::of(context),
                arguments,
                json!({}),
                Digest::from_bytes([0; 32]),
                Risk::ReversibleWrite,
                "a test asks",
                now,
                now + Duration::from_secs(60),
            );
            self.cards.update(|desk| {
                desk.at += 1;
                desk.open.push(card);
            });
            id
        }

        fn open(&self) -> ApprovalId {
            self.open_for(&call::context())
        }

        fn verdicts(&self) -> Vec<Option<bool>> {
            self.cards.quietly(|desk| {
                desk.open.iter().map(|card| card.decisions.first().map(|decision| decision.approved)).collect()
            })
        }
    }

    impl Desk for MemoryDesk {
        fn now(&self) -> Timestamp {
            self.clock.now()
        }

        fn pending<'a>(&'a self, tenant: &'a str) -> BoxFuture<'a, Result<Vec<Approval>, ToolError>> {
            let cards = self.cards.quietly(|desk| {
                desk.reads += 1;
                if desk.broken {
                    return Err(ToolError::new(ToolErrorKind::Unavailable, "the desk is away"));
                }
                Ok(desk
                    .open
                    .iter()
                    .filter(|card| card.decisions.is_empty() && *card.asker.tenant == *tenant)
                    .cloned()
                    .collect())
            });
            Box::pin(std::future::ready(cards))
        }

        fn decide<'a>(
            &'a self,
            tenant: &'a str,
            id: ApprovalId,
            decision: Decision,
        ) -> BoxFuture<'a, Result<Approval, ToolError>> {
            let decided = self.cards.update(|desk| {
                let card = desk
                    .open
                    .iter_mut()
                    .find(|card| card.id == id && *card.asker.tenant == *tenant)
                    .ok_or_else(|| ToolError::new(ToolErrorKind::ApprovalNotFound, "no card"))?;
                if !card.decisions.is_empty() {
                    return Err(ToolError::new(ToolErrorKind::ApprovalClosed, "decided"));
                }
                if decision.at >= card.decide_by {
                    return Err(ToolError::new(ToolErrorKind::ApprovalExpired, "too late"));
                }
                if decision.args_hash != card.executed.hash {
                    return Err(ToolError::new(ToolErrorKind::ApprovalMismatch, "not that"));
                }
                card.decisions.push(decision);
                desk.at += 1;
                Ok(card.clone())
            });
            Box::pin(std::future::ready(decided))
        }

        fn changed<'a>(&'a self, _tenant: &'a str, since: u64) -> BoxFuture<'a, Result<u64, ToolError>> {
            Box::pin(async move {
                let moved = |desk: &mut Cards| (desk.at != since).then_some(desk.at);
                Ok(self.cards.when(moved).await)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cards_get_the_replies_of_the_script_in_order() {
        let desk = MemoryDesk::new();
        desk.open();
        let approver = ScriptedApprover::new(desk.clone())
            .by("lead")
            .once(Reply::deny("ask for less"))
            .once(Reply::never())
            .always(Reply::approve())
            .spawn("acme");
        approver.until_decided(1).await;
        desk.open();
        desk.open();
        desk.open();
        approver.until_decided(3).await;
        assert_eq!(desk.verdicts(), [Some(false), None, Some(true), Some(true)]);
        let decided = approver.decided();
        assert_eq!(decided[0].decision.reason.as_deref(), Some("ask for less"));
        assert!(decided.iter().all(|decided| &*decided.decision.by == "lead"));
        assert!(decided.iter().all(|decided| decided.outcome.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn cards_of_other_tenants_are_not_seen() {
        let desk = MemoryDesk::new();
        let other = CallContext::without_scope(Principal::new("umbrella", "user_1"));
        desk.open_for(&other);
        desk.open();
        let approver = ScriptedApprover::new(desk.clone()).always(Reply::approve()).spawn("acme");
        approver.until_decided(1).await;
        assert_eq!(desk.verdicts(), [None, Some(true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reply_is_late_and_holds_up_no_other() {
        let desk = MemoryDesk::new();
        let approver = ScriptedApprover::new(desk.clone())
            .once(Reply::approve().after(Duration::from_secs(60)))
            .always(Reply::approve().after(Duration::from_secs(59)))
            .spawn("acme");
        let late = desk.open();
        desk.open();
        approver.until_decided(2).await;
        assert_eq!(desk.verdicts(), [None, Some(true)]);
        let decided = approver.decided();
        assert_eq!(decided[1].approval, late);
        let refused = decided[1].outcome.as_ref().unwrap_err();
        assert_eq!(refused.kind(), ToolErrorKind::ApprovalExpired);
    }

    #[tokio::test(start_paused = true)]
    async fn a_race_is_won_by_one_of_two_people() {
        let desk = MemoryDesk::new();
        desk.open();
        let approver = ScriptedApprover::new(desk.clone()).always(Reply::race("no")).spawn("acme");
        approver.until_decided(2).await;
        let decided = approver.decided();
        let won = decided.iter().filter(|decided| decided.outcome.is_ok());
        assert_eq!(won.count(), 1);
        assert_ne!(decided[0].decision.by, decided[1].decision.by);
        assert_ne!(decided[0].decision.approved, decided[1].decision.approved);
        assert_eq!(decided[0].decision.at, decided[1].decision.at);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_changes_instead_of_asking_again() {
        let desk = MemoryDesk::new();
        let approver = ScriptedApprover::new(desk.clone()).always(Reply::approve()).spawn("acme");
        desk.clock.advance(Duration::from_secs(3600)).await;
        desk.open();
        approver.until_decided(1).await;
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        let reads = desk.cards.quietly(|desk| desk.reads);
        assert!(reads <= 3, "at first, at the card, and at its decision: {reads}");
    }

    #[tokio::test(start_paused = true)]
    async fn leaves_when_dropped_also_half_way() {
        let desk = MemoryDesk::new();
        desk.open();
        let approver =
            ScriptedApprover::new(desk.clone()).always(Reply::approve().after(Duration::from_secs(5))).spawn("acme");
        desk.clock.advance(Duration::from_secs(1)).await;
        drop(approver);
        desk.clock.advance(Duration::from_secs(30)).await;
        assert_eq!(desk.verdicts(), [None]);
        assert_eq!(Arc::strong_count(&desk), 1);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the approver cannot read the desk: UNAVAILABLE: the desk is away")]
    async fn a_desk_that_fails_is_reported() {
        let desk = MemoryDesk::new();
        desk.cards.update(|desk| desk.broken = true);
        let approver = ScriptedApprover::new(desk).spawn("acme");
        approver.until_decided(1).await;
    }
}
