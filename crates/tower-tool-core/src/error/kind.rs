use std::fmt;

use serde::{Deserialize, Serialize};

/// What is known of the effect of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "whoever decides by the effect must see a fourth answer at once")]
pub enum Effect {
    /// Nothing happened.
    NotDone,
    /// It may have happened, and nobody here can say.
    MaybeDone,
    /// It happened.
    Done,
}

/// The ten categories of failure, as the envelope names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "the categories are part of the envelope's published form")]
pub enum Category {
    /// The arguments do not fit the schema. One correction may help.
    InvalidArguments,
    /// The caller may not.
    Permission,
    /// A person has to decide, or has decided.
    Approval,
    /// Too much at once. Later may help.
    RateLimited,
    /// It failed and was not done. Trying again may help.
    Transient,
    /// The state of things is against it.
    BusinessConflict,
    /// It runs still.
    InProgress,
    /// It may have happened.
    UnknownOutcome,
    /// There is no such thing.
    NotFound,
    /// A defect on our side.
    Internal,
}

impl Category {
    /// The name in the envelope.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArguments => "invalid_arguments",
            Self::Permission => "permission",
            Self::Approval => "approval",
            Self::RateLimited => "rate_limited",
            Self::Transient => "transient",
            Self::BusinessConflict => "business_conflict",
            Self::InProgress => "in_progress",
            Self::UnknownOutcome => "unknown_outcome",
            Self::NotFound => "not_found",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether, and when, the same call may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a retry policy must handle every advice")]
pub enum Retry {
    /// Not this call.
    No,
    /// Once, with corrected arguments.
    Corrected,
    /// When a person has decided.
    AfterDecision,
    /// After `retry_after`, a bounded number of times.
    Later,
    /// After reading the state of things.
    AfterReading,
    /// Not blindly: look up by its key what became of it.
    LookUp,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $category:ident, $status:literal, $retry:ident;)*) => {
        /// Why a call failed. Category, code, HTTP status and retry advice follow from it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ToolErrorKind {
            $($(#[$doc])* $name,)*
        }

        impl ToolErrorKind {
            /// Every kind, in the order of the published list of codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code, in `SCREAMING_SNAKE` case.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The category.
            pub const fn category(self) -> Category {
                match self { $(Self::$name => Category::$category,)* }
            }

            /// The HTTP status that says the same.
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Whether and when to try again.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$name => Retry::$retry,)* }
            }

            /// The kind with this code.
            pub fn from_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.code() == code)
            }
        }
    };
}

kinds! {
    /// The arguments do not fit the schema.
    InvalidArguments = "INVALID_ARGUMENTS", InvalidArguments, 400, Corrected;
    /// A tool with effects was called outside any session, or by nobody in particular.
    ScopeRequired = "SCOPE_REQUIRED", InvalidArguments, 400, No;
    /// The caller may not do this.
    PermissionDenied = "PERMISSION_DENIED", Permission, 403, No;
    /// A person has to decide first.
    ApprovalRequired = "APPROVAL_REQUIRED", Approval, 202, AfterDecision;
    /// A person said no.
    ApprovalDenied = "APPROVAL_DENIED", Approval, 403, No;
    /// Nobody decided in time, or the decision was not used in time.
    ApprovalExpired = "APPROVAL_EXPIRED", Approval, 410, No;
    /// The approval was cancelled, or is decided already.
    ApprovalClosed = "APPROVAL_CLOSED", Approval, 409, No;
    /// The approval is for another call.
    ApprovalMismatch = "APPROVAL_MISMATCH", Approval, 409, No;
    /// There is no such approval, or none of this caller's.
    ApprovalNotFound = "APPROVAL_NOT_FOUND", Approval, 404, No;
    /// The approver changed the arguments; coming back with the approval runs those.
    ApprovalEdited = "APPROVAL_EDITED", Approval, 409, AfterDecision;
    /// Too many calls.
    RateLimited = "RATE_LIMITED", RateLimited, 429, Later;
    /// Too much running at once.
    Overloaded = "OVERLOADED", RateLimited, 503, Later;
    /// Something that the call needs is away for the moment.
    Unavailable = "UNAVAILABLE", Transient, 503, Later;
    /// The tool failed and did nothing.
    ToolFailed = "TOOL_FAILED", Transient, 502, Later;
    /// It took too long.
    Timeout = "TIMEOUT", Transient, 504, Later;
    /// The state of things is against it.
    Conflict = "CONFLICT", BusinessConflict, 409, AfterReading;
    /// The key was used for other arguments.
    KeyReused = "KEY_REUSED", BusinessConflict, 422, No;
    /// It was done already, from a call with another wording.
    DuplicateIntent = "DUPLICATE_INTENT", BusinessConflict, 409, AfterReading;
    /// It was done, and its result is no longer kept.
    ReplayBodyUnavailable = "REPLAY_BODY_UNAVAILABLE", BusinessConflict, 409, AfterReading;
    /// The tool called itself with the same intent.
    Reentrant = "REENTRANT_CALL", BusinessConflict, 409, No;
    /// The same intent runs still.
    InProgress = "IN_PROGRESS", InProgress, 409, Later;
    /// It may have happened.
    UnknownOutcome = "UNKNOWN_OUTCOME", UnknownOutcome, 504, LookUp;
    /// There is no such tool.
    UnknownTool = "UNKNOWN_TOOL", NotFound, 404, No;
    /// What the call is about does not exist, or not for this caller.
    NotFound = "NOT_FOUND", NotFound, 404, No;
    /// A defect on our side.
    Internal = "INTERNAL", Internal, 500, No;
}

impl fmt::Display for ToolErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
