//! One error for every way a call can fail.
//!
//! A [`ToolError`] has a [kind](ToolError::kind) from which category, code, HTTP status and retry advice follow, and an
//! [effect](ToolError::effect) that says whether something happened. It has two texts: [`safe_message`](ToolError::safe_message)
//! for the model, and `Display` for operators. The cause never leaves the process.
//!
//! There is no `From` for foreign errors, so `?` cannot swallow one in a tool. The tool says what happened:
//!
//! ```
//! use tower_tool_core::error::ResultExt as _;
//! use tower_tool_core::{Category, Effect, ToolError};
//!
//! fn connect() -> Result<(), std::io::Error> {
//!     Err(std::io::ErrorKind::ConnectionRefused.into())
//! }
//!
//! fn tool() -> Result<(), ToolError> {
//!     connect().not_done()?;
//!     Ok(())
//! }
//!
//! let error = tool().unwrap_err();
//! assert_eq!(error.category(), Category::Transient);
//! assert_eq!(error.effect(), Effect::NotDone);
//! ```

mod kind;
mod layer_error;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use kind::{Category, Effect, Retry, ToolErrorKind};
pub use layer_error::{BoxError, LayerError};

use crate::journal::{Journal, Note};
use crate::{CallId, ExecutionId, ToolSpec};

/// Why a call failed, and what is known of its effect. See the [module docs](self).
#[derive(Clone)]
pub struct ToolError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ToolErrorKind,
    /// `None` while nobody who knows the tool has seen the error.
    effect: Option<Effect>,
    message: Cow<'static, str>,
    safe_message: Option<Cow<'static, str>>,
    is_final: bool,
    details: Map<String, Value>,
    retry_after: Option<Duration>,
    correlation: Option<CallId>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl ToolError {
    /// A failure of this kind, before anything was done. `message` is for operators.
    pub fn new(kind: ToolErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let effect = match kind {
            ToolErrorKind::UnknownOutcome | ToolErrorKind::InProgress => Effect::MaybeDone,
            ToolErrorKind::ReplayBodyUnavailable | ToolErrorKind::DuplicateIntent => Effect::Done,
            _ => Effect::NotDone,
        };
        Self::with_effect(kind, Some(effect), message.into())
    }

    fn with_effect(kind: ToolErrorKind, effect: Option<Effect>, message: Cow<'static, str>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect,
            message,
            safe_message: None,
            is_final: false,
            details: Map::new(),
            retry_after: None,
            correlation: None,
            source: None,
        }))
    }

    /// The state of things is against it, such as a refund that was made already. The model is told `message`, so write it for
    /// the model.
    pub fn conflict(message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self::new(ToolErrorKind::Conflict, message.clone()).with_safe_message(message)
    }

    /// What the call is about does not exist, or not for this caller; nobody is told which.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ToolErrorKind::NotFound, message)
    }

    /// A defect. Only the correlation id reaches the model.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ToolErrorKind::Internal, message)
    }

    /// A foreign error before which nothing was done.
    pub fn not_done(source: impl Into<BoxError>) -> Self {
        let source = source.into();
        match layer_error::peel(source) {
            // One of ours has said already what it knows.
            Ok(error) if error.0.effect.is_some() => error,
            Ok(error) => error.done(Effect::NotDone),
            Err(source) => Self::new(ToolErrorKind::ToolFailed, "the tool failed and did nothing").with_source(source),
        }
    }

    /// A foreign error after which nobody can say whether it was done.
    pub fn maybe_done(source: impl Into<BoxError>) -> Self {
        Self::new(ToolErrorKind::UnknownOutcome, "the tool failed and may have done it").with_source(source.into())
    }

    /// A foreign error that nobody has classified yet: [`seen_by`](Self::seen_by) will.
    pub(crate) fn unclassified(kind: ToolErrorKind, message: &'static str, source: BoxError) -> Self {
        Self::with_effect(kind, None, Cow::Borrowed(message)).with_source(source)
    }

    /// Says what is known of the effect.
    #[must_use]
    pub fn done(mut self, effect: Effect) -> Self {
        self.0.effect = Some(effect);
        self
    }

    /// Keeps the cause, for operators.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Tells the model this instead of the catalogue's sentence. It must hold nothing that the model may not know.
    #[must_use]
    pub fn with_safe_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.safe_message = Some(message.into());
        self
    }

    /// Adds a fact that the model and the client may know.
    #[must_use]
    pub fn with_detail(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.details.insert(name.into(), value.into());
        self
    }

    /// Says that trying again will not help this time, whatever the kind promises.
    #[must_use]
    pub fn into_final(mut self) -> Self {
        self.0.is_final = true;
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Names the execution that the caller can ask about.
    #[must_use]
    pub fn with_execution(self, execution: ExecutionId) -> Self {
        self.with_detail("execution_id", execution.to_string())
    }

    /// Rewrites both texts, and the details, for whoever masks what must not be seen.
    #[must_use]
    pub fn rewrite(mut self, text: impl Fn(&str) -> String, details: impl FnOnce(&Value) -> Value) -> Self {
        self.0.message = Cow::Owned(text(&self.0.message));
        self.0.safe_message = self.0.safe_message.map(|message| Cow::Owned(text(&message)));
        if let Value::Object(shown) = details(&Value::Object(std::mem::take(&mut self.0.details))) {
            self.0.details = shown;
        }
        self
    }

    /// Names the call under which operators find the failure. The first one stays.
    #[must_use]
    pub fn with_correlation(mut self, call: CallId) -> Self {
        self.0.correlation.get_or_insert(call);
        self
    }

    /// Why it failed.
    pub fn kind(&self) -> ToolErrorKind {
        self.0.kind
    }

    /// The category of the kind.
    pub fn category(&self) -> Category {
        self.0.kind.category()
    }

    /// The code of the kind.
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// Whether and when to try again.
    pub fn retry(&self) -> Retry {
        self.0.kind.retry()
    }

    /// Whether the same call may be made again as it is, later.
    pub fn is_retryable(&self) -> bool {
        !self.0.is_final && matches!(self.retry(), Retry::Later | Retry::Corrected)
    }

    /// What is known of the effect. What nobody has classified may have been done.
    pub fn effect(&self) -> Effect {
        self.0.effect.unwrap_or(Effect::MaybeDone)
    }

    /// When to try again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Facts that the model and the client may know.
    pub fn details(&self) -> &Map<String, Value> {
        &self.0.details
    }

    /// The call under which operators find the failure.
    pub fn correlation_id(&self) -> Option<CallId> {
        self.0.correlation
    }

    /// What operators read. May hold what the model must not know.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What the model is told.
    pub fn safe_message(&self) -> Cow<'_, str> {
        if let Some(message) = &self.0.safe_message {
            return Cow::Borrowed(message);
        }
        Cow::Borrowed(match self.0.kind {
            ToolErrorKind::InvalidArguments => {
                "The arguments do not fit the tool's schema. Correct them once, then call again."
            }
            ToolErrorKind::ScopeRequired => {
                "This tool changes something and can only be called by a known user in a session."
            }
            ToolErrorKind::PermissionDenied => "You may not do this.",
            ToolErrorKind::ApprovalRequired => "A person has to approve this first. Nothing was done yet.",
            ToolErrorKind::ApprovalDenied => {
                "A person has denied this. Nothing was done. Do not ask for the same again."
            }
            ToolErrorKind::ApprovalExpired => "The approval has expired. Nothing was done.",
            ToolErrorKind::ApprovalClosed => "The approval is closed. Nothing was done.",
            ToolErrorKind::ApprovalMismatch => "The approval is for another call. Nothing was done.",
            ToolErrorKind::ApprovalNotFound => "There is no such approval. Nothing was done.",
            ToolErrorKind::ApprovalEdited => "The call was approved with other arguments; those will run.",
            ToolErrorKind::RateLimited => "Too many calls. Nothing was done. Try again later.",
            ToolErrorKind::Overloaded => "Too much is running at the moment. Nothing was done. Try again later.",
            ToolErrorKind::Unavailable => "Something that is needed is not available at the moment. Nothing was done.",
            ToolErrorKind::ToolFailed => "The tool failed. Nothing was done.",
            ToolErrorKind::Timeout => "It took too long. Nothing was done.",
            ToolErrorKind::Conflict => "The present state does not allow this. Read the state before you try again.",
            ToolErrorKind::KeyReused => "The idempotency key was used for other arguments.",
            ToolErrorKind::DuplicateIntent => {
                "This was done already, from a call with another wording. Do not repeat it."
            }
            ToolErrorKind::ReplayBodyUnavailable => {
                "This was done already; its result is no longer kept. Do not repeat it: look it up."
            }
            ToolErrorKind::Reentrant => {
                "The tool called itself with the same arguments. Nothing was done by that call."
            }
            ToolErrorKind::InProgress => "This is in progress. Do not repeat it: ask again later.",
            ToolErrorKind::UnknownOutcome => "It may have been done. Do not repeat it: look up what became of it.",
            ToolErrorKind::UnknownTool => "There is no such tool.",
            ToolErrorKind::NotFound => "There is no such thing.",
            ToolErrorKind::Internal => "Something went wrong on our side.",
        })
    }

    /// Settles what a foreign error means, by who knows the tool and what the layers noted.
    ///
    /// Nothing dispatched: not done. A read: transient. Claimed, or under way for another call: in progress, since the execution
    /// goes on without its caller. Dispatched without a claim: it may have been done.
    #[must_use]
    pub fn seen_by(mut self, spec: Option<&ToolSpec>, journal: &Journal) -> Self {
        if self.0.effect.is_none() {
            let has_effects = spec.is_none_or(ToolSpec::has_effects);
            let begun = journal.last(|note| match note {
                Note::Claimed { execution, .. } | Note::Replayed(execution) | Note::Joined(execution) => {
                    Some(Some(*execution))
                }
                Note::UnderWay(execution) => Some(*execution),
                _ => None,
            });
            if !has_effects {
                self.0.effect = Some(Effect::NotDone);
            } else if let Some(execution) = begun {
                let timed_out = self.0.kind == ToolErrorKind::Timeout;
                self.0.kind = if timed_out { ToolErrorKind::InProgress } else { ToolErrorKind::UnknownOutcome };
                self.0.effect = Some(Effect::MaybeDone);
                if let Some(execution) = execution {
                    self = self.with_execution(execution);
                }
            } else if journal.last(|note| (*note == Note::Dispatched).then_some(())).is_some() {
                self.0.kind = ToolErrorKind::UnknownOutcome;
                self.0.effect = Some(Effect::MaybeDone);
            } else {
                self.0.effect = Some(Effect::NotDone);
            }
        }
        self.with_correlation(journal.call_id())
    }

    /// Settles an error around a tool that runs under a claim. `used` says whether the tool was reached and did not cleanly
    /// fail: then it may have been done, and no layer around it can say that it was not. Otherwise a foreign error is not done.
    #[must_use]
    pub fn seen_in_execution(mut self, used: bool) -> Self {
        match self.0.effect {
            None | Some(Effect::NotDone) if used => {
                self.0.kind = ToolErrorKind::UnknownOutcome;
                self.0.effect = Some(Effect::MaybeDone);
                // Both were said of something that did not happen.
                self.0.safe_message = None;
                self.0.retry_after = None;
            }
            None => self.0.effect = Some(Effect::NotDone),
            Some(_) => {}
        }
        self
    }

    /// The error as the envelope carries it: `{"code", "category", "retryable", "safe_message", "correlation_id",
    /// "retry_after_ms", "details"}`.
    pub fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), json!(self.code()));
        error.insert("category".to_owned(), json!(self.category()));
        error.insert("retryable".to_owned(), json!(self.is_retryable()));
        error.insert("safe_message".to_owned(), json!(self.safe_message()));
        if let Some(call) = self.0.correlation {
            error.insert("correlation_id".to_owned(), json!(call));
        }
        if let Some(after) = self.0.retry_after {
            error.insert("retry_after_ms".to_owned(), json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
        }
        if !self.0.details.is_empty() {
            error.insert("details".to_owned(), Value::Object(self.0.details.clone()));
        }
        Value::Object(error)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind, self.0.message)
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, effect, message, safe_message: _, is_final, details, retry_after, correlation, source } =
            &*self.0;
        f.debug_struct("ToolError")
            .field("kind", kind)
            .field("effect", effect)
            .field("message", message)
            .field("is_final", is_final)
            .field("details", details)
            .field("retry_after", retry_after)
            .field("correlation", correlation)
            // The cause may hold anything, a URL with its password too: it is reached by `source()` alone.
            .field("has_source", &source.is_some())
            .finish()
    }
}

impl StdError for ToolError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// How a tool says what a foreign error means.
pub trait ResultExt<T> {
    /// Nothing was done.
    ///
    /// # Errors
    ///
    /// The foreign error, as a [`ToolError`] whose effect is [`Effect::NotDone`].
    fn not_done(self) -> Result<T, ToolError>;

    /// It may have been done.
    ///
    /// # Errors
    ///
    /// The foreign error, as a [`ToolError`] whose effect is [`Effect::MaybeDone`].
    fn maybe_done(self) -> Result<T, ToolError>;
}

impl<T, E: Into<BoxError>> ResultExt<T> for Result<T, E> {
    fn not_done(self) -> Result<T, ToolError> {
        self.map_err(ToolError::not_done)
    }

    fn maybe_done(self) -> Result<T, ToolError> {
        self.map_err(ToolError::maybe_done)
    }
}

#[cfg(test)]
mod tests;
