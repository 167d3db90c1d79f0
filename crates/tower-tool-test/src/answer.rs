use std::sync::Arc;

use serde_json::{Value, json};
use tower_tool_core::{Effect, ToolError, ToolOutput};

/// What a [`MockTool`](crate::MockTool) or a [`Probe`](crate::Probe) answers, and whether it has its effect before.
///
/// Made from a `Value`, a [`ToolOutput`] or a [`ToolError`], or by one of the functions below. An output comes after the
/// effect; an error does if its own [`effect`](ToolError::effect) says `Done`; a panic and a hang come before it. The rest is
/// said with [`after_effect`](Self::after_effect).
///
/// ```
/// use tower_tool_core::ToolError;
/// use tower_tool_test::Answer;
///
/// let refused = Answer::from(ToolError::conflict("it is closed already"));
/// let crashed = Answer::panics("the connection went away").after_effect();
/// # let _ = (refused, crashed);
/// ```
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) effect: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Numbered,
    Output(ToolOutput),
    Error(ToolError),
    Panics(Arc<str>),
    Hangs,
}

impl Answer {
    /// `{ "answer": 1 }`, then `{ "answer": 2 }`, and so on: no two runs answer alike. What is answered unless told otherwise.
    pub fn numbered() -> Self {
        Self { outcome: Outcome::Numbered, effect: true }
    }

    /// A panic with this message.
    pub fn panics(message: impl Into<Arc<str>>) -> Self {
        Self { outcome: Outcome::Panics(message.into()), effect: false }
    }

    /// No answer, ever.
    pub fn hangs() -> Self {
        Self { outcome: Outcome::Hangs, effect: false }
    }

    /// The effect happens all the same.
    #[must_use]
    pub fn after_effect(mut self) -> Self {
        self.effect = true;
        self
    }
}

impl Outcome {
    /// `Err` is the message of a panic.
    pub(crate) async fn happen(self, number: usize) -> Result<Result<ToolOutput, ToolError>, Arc<str>> {
        match self {
            Self::Numbered => Ok(Ok(ToolOutput::new(json!({ "answer": number })))),
            Self::Output(output) => Ok(Ok(output)),
            Self::Error(error) => Ok(Err(error)),
            Self::Panics(message) => Err(message),
            Self::Hangs => std::future::pending().await,
        }
    }
}

impl From<ToolOutput> for Answer {
    fn from(output: ToolOutput) -> Self {
        Self { outcome: Outcome::Output(output), effect: true }
    }
}

impl From<Value> for Answer {
    fn from(data: Value) -> Self {
        ToolOutput::new(data).into()
    }
}

impl From<ToolError> for Answer {
    fn from(error: ToolError) -> Self {
        Self { effect: error.effect() == Effect::Done, outcome: Outcome::Error(error) }
    }
}
