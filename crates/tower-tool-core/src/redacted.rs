use std::fmt;

use serde::{Serialize, Serializer};

/// A value that never shows itself: `Debug`, `Display` and `Serialize` give `[redacted]`.
///
/// ```
/// use tower_tool_core::Redacted;
///
/// let token = Redacted::new("s3cr3t".to_owned());
/// assert_eq!(format!("{token:?} {token}"), "[redacted] [redacted]");
/// assert_eq!(token.reveal(), "s3cr3t");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// What is shown in place of a value.
    pub const MARK: &'static str = "[redacted]";

    /// Hides `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself, for the one place that needs it.
    pub const fn reveal(&self) -> &T {
        &self.0
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> From<T> for Redacted<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::MARK)
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::MARK)
    }
}

impl<T> Serialize for Redacted<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Self::MARK)
    }
}
