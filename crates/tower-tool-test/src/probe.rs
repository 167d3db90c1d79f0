//! An inner service that watches how a layer treats it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tower_service::Service;
use tower_tool_core::{BoxFuture, ToolCall, ToolError, ToolErrorKind, ToolOutput};

use crate::Answer;
use crate::watched::{Watched, expected};

/// What a caller of the probe must not do, and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// `call` on an instance that had not reported ready, or had been called since.
    CalledUnready,
    /// `call` on an instance whose `poll_ready` had failed.
    CalledAfterFailure,
    /// `poll_ready` on an instance whose `poll_ready` had failed.
    PolledAfterFailure,
    /// A response future was polled after it had answered.
    PolledAfterAnswer,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CalledUnready => "an instance was called that had not reported ready",
            Self::CalledAfterFailure => "an instance was called whose readiness had failed",
            Self::PolledAfterFailure => "an instance was polled again whose readiness had failed",
            Self::PolledAfterAnswer => "a response future was polled after it had answered",
        })
    }
}

/// What a [`Probe`] and its clones have seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Polls of readiness.
    pub ready_polls: usize,
    /// Instances that reported ready and were neither called nor dropped since.
    pub reserved: usize,
    /// Calls.
    pub calls: usize,
    /// Response futures that live and have not answered.
    pub in_flight: usize,
    /// The most that were in flight at once.
    pub peak: usize,
    /// Polls of response futures.
    pub future_polls: usize,
    /// Calls that were answered, with an output or an error.
    pub answered: usize,
    /// Calls that panicked.
    pub panicked: usize,
    /// Response futures that were dropped before they had answered.
    pub dropped: usize,
}

/// A service to put a layer around in its tests. It notes every breach of tower's contract instead of tolerating it.
///
/// A ready instance holds a reservation until it is called or dropped, and a clone of it does not inherit it: what a
/// concurrency limit does, so a layer that gets on with a probe gets on with that. Clones share everything else.
///
/// ```
/// use serde_json::json;
/// use tower::ServiceExt as _;
/// use tower_service::Service as _;
/// use tower_tool_core::{Risk, ToolError};
/// use tower_tool_test::{MockTool, Probe, call};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), ToolError> {
/// let mut probe = Probe::new(); // the layer under test goes around it
/// let handle = probe.handle();
/// let call = MockTool::new("get_status", Risk::PublicRead).prepared(json!({}), call::context());
///
/// let output = probe.ready().await?.call(call.clone()).await?;
/// assert_eq!(output.data()["answer"], 1);
/// handle.assert_clean();
///
/// probe.call(call).await?;
/// assert_eq!(handle.violations().len(), 1); // called without being ready
/// # Ok(())
/// # }
/// ```
pub struct Probe {
    shared: Arc<Watched<State>>,
    instance: Instance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instance {
    Unready,
    Ready,
    Failed,
}

enum Readiness {
    Open,
    Held,
    Failing(ToolError),
}

struct State {
    counts: Counts,
    capacity: usize,
    readiness: Readiness,
    /// Who waits to become ready.
    waiting: Vec<Waker>,
    held: bool,
    panic_in_call: bool,
    once: VecDeque<Answer>,
    always: Answer,
    answers: usize,
    calls: Vec<ToolCall>,
    violations: Vec<Violation>,
}

impl Probe {
    /// A probe that takes any number of calls at once.
    pub fn new() -> Self {
        Self::with_capacity(usize::MAX)
    }

    /// A probe that takes so many calls at once, reserved or in flight.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            shared: Arc::new(Watched::new(State {
                counts: Counts::default(),
                capacity,
                readiness: Readiness::Open,
                waiting: Vec::new(),
                held: false,
                panic_in_call: false,
                once: VecDeque::new(),
                always: Answer::numbered(),
                answers: 0,
                calls: Vec::new(),
                violations: Vec::new(),
            })),
            instance: Instance::Unready,
        }
    }

    /// What steers the probe and tells what it saw.
    pub fn handle(&self) -> ProbeHandle {
        ProbeHandle { shared: Arc::clone(&self.shared) }
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Probe {
    /// The clone is not ready, whatever this instance is.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), instance: Instance::Unready }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.instance == Instance::Ready {
            self.shared.free(|counts| counts.reserved -= 1);
        }
    }
}

impl Service<ToolCall> for Probe {
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        let instance = self.instance;
        let polled = self.shared.quietly(|state| {
            state.counts.ready_polls += 1;
            match instance {
                Instance::Ready => Poll::Ready(Ok(())),
                Instance::Failed => {
                    state.violations.push(Violation::PolledAfterFailure);
                    Poll::Ready(Err(ToolError::new(
                        ToolErrorKind::Unavailable,
                        Violation::PolledAfterFailure.to_string(),
                    )))
                }
                Instance::Unready => state.poll_slot(cx),
            }
        });
        if instance == Instance::Unready
            && let Poll::Ready(outcome) = &polled
        {
            self.instance = match outcome {
                Ok(()) => Instance::Ready,
                Err(_) => Instance::Failed,
            };
            self.shared.update(|_| ());
        }
        polled
    }

    fn call(&mut self, call: ToolCall) -> ResponseFuture {
        let instance = self.instance;
        if instance == Instance::Ready {
            self.instance = Instance::Unready;
        }
        let panics = self.shared.update(|state| state.begin(instance, call));
        if panics {
            // The reservation is gone with the call that never was.
            self.shared.free(|_| ());
            panic!("the probe panics in `call`, as it was told to");
        }
        let shared = Arc::clone(&self.shared);
        ResponseFuture {
            flight: Flight { shared: Arc::clone(&shared), ended: false },
            answer: Box::pin(async move {
                shared.when(|state| (!state.held).then_some(())).await;
                let (answer, number) = shared.quietly(State::take_answer);
                answer.outcome.happen(number).await
            }),
        }
    }
}

impl State {
    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        match &self.readiness {
            Readiness::Failing(error) => return Poll::Ready(Err(error.clone())),
            Readiness::Open if self.counts.reserved + self.counts.in_flight < self.capacity => {
                self.counts.reserved += 1;
                return Poll::Ready(Ok(()));
            }
            Readiness::Open | Readiness::Held => {}
        }
        if !self.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Notes a call, and says whether it panics.
    fn begin(&mut self, instance: Instance, call: ToolCall) -> bool {
        match instance {
            Instance::Ready => self.counts.reserved -= 1,
            Instance::Unready => self.violations.push(Violation::CalledUnready),
            Instance::Failed => self.violations.push(Violation::CalledAfterFailure),
        }
        self.calls.push(call);
        self.counts.calls += 1;
        let panics = std::mem::take(&mut self.panic_in_call);
        if panics {
            self.counts.panicked += 1;
        } else {
            self.counts.in_flight += 1;
            self.counts.peak = self.counts.peak.max(self.counts.in_flight);
        }
        panics
    }

    fn take_answer(&mut self) -> (Answer, usize) {
        let answer = self.once.pop_front().unwrap_or_else(|| self.always.clone());
        self.answers += 1;
        (answer, self.answers)
    }
}

impl Watched<State> {
    /// Counts what gives room, and wakes who waits for room.
    fn free(&self, count: impl FnOnce(&mut Counts)) {
        let waiting = self.update(|state| {
            count(&mut state.counts);
            std::mem::take(&mut state.waiting)
        });
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shared: _, instance } = self;
        f.debug_struct("Probe").field("instance", instance).finish_non_exhaustive()
    }
}

/// What a [`Probe`] answers with. Dropped before it has answered, it counts as dropped.
pub struct ResponseFuture {
    flight: Flight,
    answer: BoxFuture<'static, Result<Result<ToolOutput, ToolError>, Arc<str>>>,
}

struct Flight {
    shared: Arc<Watched<State>>,
    ended: bool,
}

impl Future for ResponseFuture {
    type Output = Result<ToolOutput, ToolError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { flight, answer } = &mut *self;
        flight.shared.quietly(|state| {
            state.counts.future_polls += 1;
            if flight.ended {
                state.violations.push(Violation::PolledAfterAnswer);
            }
        });
        if flight.ended {
            return Poll::Pending;
        }
        match answer.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(answer)) => {
                flight.end(|counts| counts.answered += 1);
                Poll::Ready(answer)
            }
            Poll::Ready(Err(message)) => {
                flight.end(|counts| counts.panicked += 1);
                panic!("{message}");
            }
        }
    }
}

impl Flight {
    fn end(&mut self, count: impl FnOnce(&mut Counts)) {
        self.ended = true;
        self.shared.free(|counts| {
            counts.in_flight -= 1;
            count(counts);
        });
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.ended {
            self.end(|counts| counts.dropped += 1);
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flight, answer: _ } = self;
        f.debug_struct("ResponseFuture").field("answered", &flight.ended).finish_non_exhaustive()
    }
}

/// Steers a [`Probe`] with all its clones, and tells what they saw.
#[derive(Clone)]
pub struct ProbeHandle {
    shared: Arc<Watched<State>>,
}

impl ProbeHandle {
    /// Keeps every instance that is not ready yet from becoming so.
    pub fn hold_ready(&self) {
        self.shared.update(|state| state.readiness = Readiness::Held);
    }

    /// Fails every instance that is not ready yet with this error when it is polled, and those that wait already.
    pub fn fail_ready(&self, error: ToolError) {
        self.shared.update(|state| state.readiness = Readiness::Failing(error));
        self.shared.free(|_| ());
    }

    /// Lets instances become ready again.
    pub fn open_ready(&self) {
        self.shared.update(|state| state.readiness = Readiness::Open);
        self.shared.free(|_| ());
    }

    /// Holds all answers back.
    pub fn hold(&self) {
        self.shared.update(|state| state.held = true);
    }

    /// Gives the answers that were held back, and holds no more.
    pub fn release(&self) {
        self.shared.update(|state| state.held = false);
    }

    /// Answers so from now on.
    pub fn set_answer(&self, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.shared.update(|state| state.always = answer);
    }

    /// Answers so once. Several such answers are taken in the order they were given.
    pub fn answer_once(&self, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.shared.update(|state| state.once.push_back(answer));
    }

    /// Panics in the next `call` itself, before there is a future. [`Answer::panics`] does so in the future.
    pub fn panic_in_call(&self) {
        self.shared.update(|state| state.panic_in_call = true);
    }

    /// What was seen so far.
    pub fn counts(&self) -> Counts {
        self.shared.quietly(|state| state.counts)
    }

    /// The calls in the order they came.
    pub fn calls(&self) -> Vec<ToolCall> {
        self.shared.quietly(|state| state.calls.clone())
    }

    /// The breaches of contract in the order they happened.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.quietly(|state| state.violations.clone())
    }

    /// Waits until the counts are as `reached` wants them. Polls alone wake nobody.
    ///
    /// # Panics
    ///
    /// When awaited: if a day passes, which under paused time is as soon as nothing else can happen; or outside a runtime
    /// with timers.
    #[track_caller]
    pub fn until(&self, reached: impl FnMut(&Counts) -> bool) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move { expected(self.reached(reached), "the calls of a probe", at).await }
    }

    pub(crate) async fn reached(&self, mut reached: impl FnMut(&Counts) -> bool) {
        self.shared.when(|state| reached(&state.counts).then_some(())).await;
    }

    /// Checks that the contract was kept.
    ///
    /// # Panics
    ///
    /// If it was not.
    #[track_caller]
    pub fn assert_clean(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "the probe should have been used by the contract: {violations:?}");
    }

    /// Checks how many calls came.
    ///
    /// # Panics
    ///
    /// If it were more, or less.
    #[track_caller]
    pub fn assert_calls(&self, count: usize) {
        let counts = self.counts();
        assert!(counts.calls == count, "the probe should have been called {count} times: {counts:?}");
    }

    /// Checks that nothing is reserved and nothing in flight.
    ///
    /// # Panics
    ///
    /// If something is.
    #[track_caller]
    pub fn assert_idle(&self) {
        let counts = self.counts();
        assert!(counts.reserved == 0 && counts.in_flight == 0, "the probe should be idle: {counts:?}");
    }
}

impl fmt::Debug for ProbeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeHandle")
            .field("counts", &self.counts())
            .field("violations", &self.violations())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::task::JoinSet;
    use tower::ServiceExt as _;
    use tower_tool_core::Risk;

    use super::*;
    use crate::{MockTool, call};

    fn a_call() -> ToolCall {
        MockTool::new("get_status", Risk::PublicRead).prepared(json!({}), call::context())
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_does_not_survive_a_clone_or_a_call() {
        let mut probe = Probe::new();
        let handle = probe.handle();
        probe.ready().await.unwrap();
        let mut clone = probe.clone();
        assert_eq!(handle.counts().reserved, 1);
        probe.call(a_call()).await.unwrap();
        handle.assert_clean();
        handle.assert_idle();
        clone.call(a_call()).await.unwrap();
        probe.call(a_call()).await.unwrap();
        assert_eq!(handle.violations(), [Violation::CalledUnready; 2]);
        handle.assert_calls(3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_instance_is_dead() {
        let mut probe = Probe::new();
        let handle = probe.handle();
        handle.fail_ready(ToolError::new(ToolErrorKind::Unavailable, "away"));
        assert!(probe.ready().await.is_err());
        handle.open_ready();
        assert!(probe.ready().await.is_err());
        let _ = probe.call(a_call()).await;
        assert_eq!(handle.violations(), [Violation::PolledAfterFailure, Violation::CalledAfterFailure]);
        probe.clone().oneshot(a_call()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn capacity_counts_reservations_and_calls_and_is_given_back() {
        let probe = Probe::with_capacity(1);
        let handle = probe.handle();
        let mut first = probe.clone();
        first.ready().await.unwrap();
        let mut others = JoinSet::new();
        others.spawn(probe.clone().oneshot(a_call()));
        others.spawn(probe.clone().oneshot(a_call()));
        tokio::task::yield_now().await;
        handle.assert_calls(0);
        handle.hold();
        let answer = first.call(a_call());
        tokio::task::yield_now().await;
        handle.assert_calls(1);
        drop(answer);
        handle.until(|counts| counts.in_flight == 1).await;
        handle.release();
        while let Some(answer) = others.join_next().await {
            answer.unwrap().unwrap();
        }
        let counts = handle.counts();
        assert_eq!((counts.calls, counts.dropped, counts.peak), (3, 1, 1));
        handle.assert_idle();
        handle.assert_clean();
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_can_be_held() {
        let probe = Probe::new();
        let handle = probe.handle();
        handle.hold_ready();
        let mut callers = JoinSet::new();
        callers.spawn(probe.oneshot(a_call()));
        tokio::task::yield_now().await;
        handle.assert_calls(0);
        handle.open_ready();
        callers.join_next().await.unwrap().unwrap().unwrap();
        handle.assert_clean();
    }

    #[tokio::test(start_paused = true)]
    async fn panics_in_the_call_and_in_the_future_and_stays_whole() {
        let probe = Probe::with_capacity(1);
        let handle = probe.handle();
        let mut callers = JoinSet::new();
        handle.panic_in_call();
        callers.spawn(probe.clone().oneshot(a_call()));
        assert!(callers.join_next().await.unwrap().unwrap_err().is_panic());
        handle.answer_once(Answer::panics("boom"));
        callers.spawn(probe.clone().oneshot(a_call()));
        assert!(callers.join_next().await.unwrap().unwrap_err().is_panic());
        assert_eq!(handle.counts().panicked, 2);
        handle.assert_idle();
        probe.oneshot(a_call()).await.unwrap();
    }
}
