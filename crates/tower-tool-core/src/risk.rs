use std::fmt;

use serde::{Deserialize, Serialize};

/// How much harm a call of this tool can do.
///
/// Everything from [`ReversibleWrite`](Risk::ReversibleWrite) up *has effects*: it is claimed in the ledger before it runs, it
/// runs in a task of its own, and nothing repeats it by itself. A tool whose author does not say gets
/// [`HighImpact`](Risk::HighImpact).
///
/// ```
/// use tower_tool_core::Risk;
///
/// assert!(Risk::PublicRead < Risk::Critical);
/// assert!(!Risk::PrivateRead.has_effects());
/// assert!(Risk::ReversibleWrite.has_effects());
/// assert!(Risk::HighImpact.demands_approval());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(clippy::exhaustive_enums, reason = "a new level of risk must break the build of whoever decides by it")]
pub enum Risk {
    /// R0: reads what anyone may read.
    #[serde(rename = "R0")]
    PublicRead,
    /// R1: reads what belongs to someone.
    #[serde(rename = "R1")]
    PrivateRead,
    /// R2: changes something, and the change can be undone.
    #[serde(rename = "R2")]
    ReversibleWrite,
    /// R3: changes something that is hard to undo. The default.
    #[default]
    #[serde(rename = "R3")]
    HighImpact,
    /// R4: money, law, production.
    #[serde(rename = "R4")]
    Critical,
}

impl Risk {
    /// Whether a call changes something outside.
    pub const fn has_effects(self) -> bool {
        matches!(self, Self::ReversibleWrite | Self::HighImpact | Self::Critical)
    }

    /// Whether every call needs a grant, whatever the layers around it think.
    pub const fn demands_approval(self) -> bool {
        matches!(self, Self::HighImpact | Self::Critical)
    }

    /// The short name, `R0` to `R4`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PublicRead => "R0",
            Self::PrivateRead => "R1",
            Self::ReversibleWrite => "R2",
            Self::HighImpact => "R3",
            Self::Critical => "R4",
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
