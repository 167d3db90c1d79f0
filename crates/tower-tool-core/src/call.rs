use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::journal::{Journal, Note};
use crate::marks::{Kind, Marks};
use crate::{CallContext, Intent, Redacted, ToolError, ToolSpec};

/// A call of a tool: its name, its arguments, and what trusted code knows of the call.
///
/// `Debug` shows neither arguments nor their names.
///
/// ```
/// use serde_json::json;
/// use tower_tool_core::{CallContext, Principal, Scope, ToolCall};
///
/// let context = CallContext::new(Principal::new("acme", "user_42"), Scope::new("session-1")?);
/// let call = ToolCall::new("add_todo", json!({ "title": "buy milk" }), context);
/// assert!(!format!("{call:?}").contains("milk"));
/// # Ok::<(), tower_tool_core::NameError>(())
/// ```
#[derive(Clone)]
pub struct ToolCall {
    name: Arc<str>,
    arguments: Arc<Value>,
    /// Who calls, where, until when.
    pub context: CallContext,
    cut_off: bool,
    marks: Marks,
    journal: Arc<Journal>,
}

impl ToolCall {
    /// A new call, with a journal of its own. `null` arguments are the empty object.
    pub fn new(name: impl Into<Arc<str>>, arguments: impl Into<Arc<Value>>, context: CallContext) -> Self {
        let mut arguments = arguments.into();
        if arguments.is_null() {
            arguments = Arc::new(Value::Object(serde_json::Map::new()));
        }
        let (marks, journal) = (Marks::default(), Arc::new(Journal::new()));
        Self { name: name.into(), arguments, context, cut_off: false, marks, journal }
    }

    /// A new call from the text of its arguments, as a model wrote it; see [`arguments`](crate::arguments).
    ///
    /// # Errors
    ///
    /// `invalid_arguments`, if the text is not one JSON object that every reader reads alike.
    pub fn from_text(name: impl Into<Arc<str>>, text: &str, context: CallContext) -> Result<Self, ToolError> {
        Ok(Self::new(name, crate::arguments::from_text(text)?, context))
    }

    /// Says that the model was stopped while it wrote the call, as a provider's finish reason tells. What is left of the arguments
    /// may be valid and mean something else, so a tool with effects refuses it.
    #[must_use]
    pub fn with_cut_off(mut self, cut_off: bool) -> Self {
        self.cut_off = cut_off;
        self
    }

    /// Whether the model was stopped while it wrote the call.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// The name that was called, known or not.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, to keep.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The arguments.
    pub fn arguments(&self) -> &Arc<Value> {
        &self.arguments
    }

    /// Changes the arguments. Drops intent, grant and claim, since those were for other arguments; what was demanded stays
    /// demanded. Put the layer that does this outside validation: of a call that was validated, nothing runs without its intent.
    #[must_use]
    pub fn map_arguments(mut self, change: impl FnOnce(Arc<Value>) -> Arc<Value>) -> Self {
        self.arguments = change(self.arguments);
        self.marks.forget_arguments();
        self
    }

    /// Puts the normal form of the arguments in place, with the intent that belongs to it. For the layer that validates.
    #[must_use]
    pub fn with_intent(mut self, arguments: Arc<Value>, intent: Arc<Intent>) -> Self {
        self.arguments = arguments;
        self.marks.set_intent(intent);
        self
    }

    /// Puts stored arguments in place, with the approval they were shown under. For the layer that resumes: everything that
    /// was decided before is dropped.
    #[must_use]
    pub fn with_resumed(mut self, arguments: Arc<Value>, approval: crate::ApprovalId, intent: Arc<Intent>) -> Self {
        self.arguments = arguments;
        self.marks.forget_arguments();
        self.marks.set_resumed(approval, intent);
        self.journal.next_pass();
        self
    }

    /// What the layers decided so far.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// What the layers decided so far, to add to it.
    pub fn marks_mut(&mut self) -> &mut Marks {
        &mut self.marks
    }

    /// The spec of the tool, where the toolset knows one by this name.
    pub fn spec(&self) -> Option<&ToolSpec> {
        self.marks.entry().map(|entry| entry.spec())
    }

    /// Where the layers note what they decide.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Gives the call a journal of its own, as a call into another toolset needs it.
    #[must_use]
    pub fn with_new_journal(mut self) -> Self {
        self.journal = Arc::new(Journal::new());
        self
    }

    /// Notes that a layer of this kind sees the call.
    ///
    /// # Errors
    ///
    /// An internal error that names both layers, if this one must not stand inside one that the call has passed. The journal
    /// has it as this layer's refusal.
    pub fn enter(&mut self, kind: Kind) -> Result<(), ToolError> {
        self.marks.enter(kind).inspect_err(|error| self.journal.note(Note::Refused { by: kind, kind: error.kind() }))
    }
}

impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, arguments: _, context, cut_off, marks, journal } = self;
        f.debug_struct("ToolCall")
            .field("name", name)
            .field("arguments", &Redacted::<()>::MARK)
            .field("context", context)
            .field("cut_off", cut_off)
            .field("marks", marks)
            .field("call_id", &journal.call_id())
            .finish()
    }
}
