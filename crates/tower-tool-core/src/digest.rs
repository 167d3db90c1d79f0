use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A SHA-256 digest, written `sha256:` and 64 lower-case hexadecimal digits.
///
/// ```
/// use tower_tool_core::Digest;
///
/// let digest = Digest::from_bytes([0xab; 32]);
/// assert_eq!(digest.to_string(), format!("sha256:{}", "ab".repeat(32)));
/// assert_eq!(digest.to_string().parse::<Digest>()?, digest);
/// # Ok::<(), tower_tool_core::IdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

const PREFIX: &str = "sha256:";

impl Digest {
    /// Wraps the 32 bytes of a digest.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = crate::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix(PREFIX).ok_or(crate::IdError::new("a digest"))?;
        crate::id::parse_hex(hex).map(Self).ok_or(crate::IdError::new("a digest"))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
