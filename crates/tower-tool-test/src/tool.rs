//! A tool that counts what becomes of its calls.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use serde_json::Value;
use tower_tool_core::{BoxFuture, CallContext, Invoke, Risk, Tool, ToolCall, ToolError, ToolOutput, ToolSpec};

use crate::watched::{Watched, expected};
use crate::{Answer, call};

/// What became of the calls of a [`MockTool`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Executions that began.
    pub started: usize,
    /// Executions that had their effect.
    pub effects: usize,
    /// Executions that answered, with an output or an error.
    pub finished: usize,
    /// Executions that panicked.
    pub panicked: usize,
    /// Executions that were dropped after they had begun.
    pub dropped: usize,
    /// Executions under way.
    pub running: usize,
    /// The most executions that were under way at once.
    pub peak: usize,
}

/// A tool that has no effect but counts as if it had, answers as it is told to, and remembers its calls.
///
/// An execution begins, stops there as long as the tool is [held](Self::hold), takes its answer, has its effect, and answers.
/// Clones are the same tool.
///
/// ```
/// use serde_json::json;
/// use tower_tool_core::{Risk, ToolError};
/// use tower_tool_test::{MockTool, call};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), ToolError> {
/// let mock = MockTool::new("create_ticket", Risk::ReversibleWrite);
/// mock.answer_once(ToolError::conflict("there is one already"));
///
/// let tool = mock.tool(); // what a toolset takes
/// let service = tool.service().expect("it is not only declared");
/// let call = mock.prepared(json!({}), call::context());
/// assert!(service.invoke(call.clone()).await.is_err());
/// mock.assert_effects(0);
/// assert_eq!(service.invoke(call).await?.data()["answer"], 1);
/// mock.assert_effects(1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MockTool {
    spec: ToolSpec,
    shared: Arc<Watched<State>>,
}

struct State {
    counts: Counts,
    calls: Vec<ToolCall>,
    once: VecDeque<Answer>,
    always: Answer,
    held: bool,
    /// How many executions may go on although the tool is held.
    let_through: usize,
}

impl MockTool {
    /// A tool of this name and risk that takes no arguments.
    ///
    /// # Panics
    ///
    /// If a tool cannot be named so.
    #[track_caller]
    pub fn new(name: &str, risk: Risk) -> Self {
        Self::with_schema(name, risk, serde_json::json!({ "type": "object" }))
    }

    /// A tool of this name and risk that takes what fits the JSON Schema, which is closed as every spec's is.
    ///
    /// # Panics
    ///
    /// If a tool cannot be named so, or the schema does not describe an object.
    #[track_caller]
    pub fn with_schema(name: &str, risk: Risk, schema: Value) -> Self {
        let spec = ToolSpec::builder(name)
            .description("Counts its calls. Use it in tests, and not for anything else.")
            .risk(risk)
            .input_schema(schema)
            .build();
        match spec {
            Ok(spec) => Self::of(&spec),
            Err(error) => panic!("{error}"),
        }
    }

    /// A tool with this spec.
    pub fn of<I, O>(spec: &ToolSpec<I, O>) -> Self {
        Self {
            spec: spec.erase(),
            shared: Arc::new(Watched::new(State {
                counts: Counts::default(),
                calls: Vec::new(),
                once: VecDeque::new(),
                always: Answer::numbered(),
                held: false,
                let_through: 0,
            })),
        }
    }

    /// The spec.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The tool, as a toolset takes it.
    pub fn tool(&self) -> Tool {
        Tool::new(&self.spec, self.clone())
    }

    /// A call of this tool as a toolset hands it to its stack. See [`call::looked_up`].
    pub fn looked_up(&self, arguments: impl Into<Arc<Value>>, context: CallContext) -> ToolCall {
        call::with_service(self.spec.clone(), Arc::new(self.clone()), arguments, context)
    }

    /// A call of this tool as validation hands it on. See [`call::prepared`].
    pub fn prepared(&self, arguments: impl Into<Arc<Value>>, context: CallContext) -> ToolCall {
        call::validated(self.looked_up(arguments, context))
    }

    /// Answers so from now on.
    #[must_use = "use `set_answer` for a tool that is at work already"]
    pub fn with_answer(self, answer: impl Into<Answer>) -> Self {
        self.set_answer(answer);
        self
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

    /// Stops every execution before its effect.
    pub fn hold(&self) {
        self.shared.update(|state| {
            state.held = true;
            state.let_through = 0;
        });
    }

    /// Lets one execution go on, a held one or the next.
    pub fn release_one(&self) {
        self.shared.update(|state| state.let_through += 1);
    }

    /// Lets all executions go on, and holds no more.
    pub fn release(&self) {
        self.shared.update(|state| state.held = false);
    }

    /// What became of the calls so far.
    pub fn counts(&self) -> Counts {
        self.shared.quietly(|state| state.counts)
    }

    /// The calls in the order they came.
    pub fn calls(&self) -> Vec<ToolCall> {
        self.shared.quietly(|state| state.calls.clone())
    }

    /// Waits until the counts are as `reached` wants them.
    ///
    /// # Panics
    ///
    /// When awaited: if a day passes, which under paused time is as soon as nothing else can happen; or outside a runtime
    /// with timers.
    #[track_caller]
    pub fn until(&self, mut reached: impl FnMut(&Counts) -> bool) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let wait = self.shared.when(|state| reached(&state.counts).then_some(()));
            expected(wait, "the calls of a tool", at).await;
        }
    }

    /// Waits until so many executions have begun.
    ///
    /// # Panics
    ///
    /// As [`until`](Self::until) does.
    #[track_caller]
    pub fn until_started(&self, count: usize) -> impl Future<Output = ()> {
        self.until(move |counts| counts.started >= count)
    }

    /// Checks how many executions had their effect.
    ///
    /// # Panics
    ///
    /// If it were more, or less.
    #[track_caller]
    pub fn assert_effects(&self, count: usize) {
        let counts = self.counts();
        assert!(counts.effects == count, "`{}` should have had {count} effects: {counts:?}", self.spec.name());
    }

    /// Checks how many calls came.
    ///
    /// # Panics
    ///
    /// If it were more, or less.
    #[track_caller]
    pub fn assert_calls(&self, count: usize) {
        let calls = self.shared.quietly(|state| state.calls.len());
        assert!(calls == count, "`{}` should have been called {count} times, not {calls}", self.spec.name());
    }

    /// Checks that no execution is under way.
    ///
    /// # Panics
    ///
    /// If one is.
    #[track_caller]
    pub fn assert_idle(&self) {
        let counts = self.counts();
        assert!(counts.running == 0, "`{}` should not be running: {counts:?}", self.spec.name());
    }
}

impl Invoke for MockTool {
    fn invoke(&self, call: ToolCall) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        self.shared.update(|state| state.calls.push(call));
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let run = Run::begin(shared);
            run.shared.when(State::pass).await;
            let (answer, number) = run.shared.update(State::take_answer);
            match answer.outcome.happen(number).await {
                Ok(answer) => {
                    run.end(|counts| counts.finished += 1);
                    answer
                }
                Err(message) => {
                    run.end(|counts| counts.panicked += 1);
                    panic!("{message}");
                }
            }
        })
    }
}

impl State {
    fn pass(&mut self) -> Option<()> {
        if self.held {
            self.let_through = self.let_through.checked_sub(1)?;
        }
        Some(())
    }

    fn take_answer(&mut self) -> (Answer, usize) {
        let answer = self.once.pop_front().unwrap_or_else(|| self.always.clone());
        if answer.effect {
            self.counts.effects += 1;
        }
        (answer, self.counts.effects)
    }
}

/// An execution under way. Dropped before its end, it counts as dropped.
struct Run {
    shared: Arc<Watched<State>>,
    ended: bool,
}

impl Run {
    fn begin(shared: Arc<Watched<State>>) -> Self {
        shared.update(|State { counts, .. }| {
            counts.started += 1;
            counts.running += 1;
            counts.peak = counts.peak.max(counts.running);
        });
        Self { shared, ended: false }
    }

    fn end(mut self, count: impl FnOnce(&mut Counts)) {
        self.ended = true;
        self.shared.update(|state| count(&mut state.counts));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shared.update(|State { counts, .. }| {
            counts.running -= 1;
            counts.dropped += usize::from(!self.ended);
        });
    }
}

impl fmt::Debug for MockTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, shared: _ } = self;
        f.debug_struct("MockTool").field("spec", spec).field("counts", &self.counts()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::task::JoinSet;
    use tower_tool_core::Effect;

    use super::*;

    fn ticket() -> MockTool {
        MockTool::new("create_ticket", Risk::ReversibleWrite)
    }

    fn run(mock: &MockTool) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        mock.invoke(mock.prepared(json!({}), call::context()))
    }

    #[tokio::test(start_paused = true)]
    async fn answers_by_script_and_counts_effects() {
        let mock = ticket().with_answer(json!({ "ticket": "TK-1" }));
        mock.answer_once(ToolError::not_done("refused"));
        mock.answer_once(ToolError::internal("half way").done(Effect::Done));
        assert!(run(&mock).await.is_err());
        mock.assert_effects(0);
        assert!(run(&mock).await.is_err());
        mock.assert_effects(1);
        assert_eq!(run(&mock).await.unwrap().data()["ticket"], "TK-1");
        mock.assert_effects(2);
        mock.assert_calls(3);
        mock.assert_idle();
        assert_eq!(mock.counts().finished, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn holds_before_the_effect_and_counts_what_is_dropped() {
        let mock = ticket();
        mock.hold();
        let mut runs = JoinSet::new();
        let first = runs.spawn(run(&mock));
        runs.spawn(run(&mock));
        runs.spawn(run(&mock));
        mock.until_started(3).await;
        mock.assert_effects(0);
        first.abort();
        mock.until(|counts| counts.dropped == 1).await;
        mock.release_one();
        mock.until(|counts| counts.finished == 1).await;
        tokio::task::yield_now().await;
        mock.assert_effects(1);
        mock.release();
        while runs.join_next().await.is_some() {}
        let counts = mock.counts();
        assert_eq!((counts.effects, counts.peak, counts.running), (2, 3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn panics_and_hangs_when_told_to() {
        let mock = ticket();
        mock.answer_once(Answer::panics("boom").after_effect());
        mock.answer_once(Answer::hangs());
        let mut runs = JoinSet::new();
        runs.spawn(run(&mock));
        let panicked = runs.join_next().await.unwrap().unwrap_err();
        assert!(panicked.is_panic());
        mock.assert_effects(1);
        let hanging = tokio::time::timeout(Duration::from_secs(1), run(&mock));
        assert!(hanging.await.is_err());
        let counts = mock.counts();
        assert_eq!((counts.panicked, counts.dropped, counts.effects), (1, 1, 1));
        mock.assert_idle();
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited a day for the calls of a tool, at ")]
    async fn a_wait_in_vain_says_where() {
        ticket().until_started(1).await;
    }

    #[test]
    #[should_panic(expected = "`create_ticket` should have had 1 effects")]
    fn a_failed_assertion_says_what_was() {
        ticket().assert_effects(1);
    }
}
