//! Identifiers that we make ourselves.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text is not an identifier of the kind that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdError {
    expected: &'static str,
}

impl IdError {
    pub(crate) const fn new(expected: &'static str) -> Self {
        Self { expected }
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the text is not {}", self.expected)
    }
}

impl std::error::Error for IdError {}

pub(crate) fn parse_hex<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let digits = hex.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = (*byte << 4) | value;
        }
    }
    Some(bytes)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix)
                    .and_then(parse_hex)
                    .map(Self)
                    .ok_or(IdError::new($what))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id! {
    /// One logical call, as audit and errors name it. Unique, not secret.
    CallId, "call_", "a call id"
}

id! {
    /// One execution of a tool with effects: 128 random bits.
    ExecutionId, "exec_", "an execution id"
}

id! {
    /// One approval: 128 random bits. Knowing it authorises nothing.
    ApprovalId, "appr_", "an approval id"
}

impl CallId {
    /// The next id of this process: a random start, then a counter.
    pub fn next() -> Self {
        static START: OnceLock<u128> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Without a random source the ids are still unique in this process, and a call id protects nothing.
        let start = START.get_or_init(|| u128::from_ne_bytes(random().unwrap_or([0; 16])));
        let count = u128::from(COUNT.fetch_add(1, Ordering::Relaxed));
        Self(start.wrapping_add(count).to_be_bytes())
    }
}

impl ExecutionId {
    /// A random id.
    ///
    /// # Errors
    ///
    /// If the operating system has no random source to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        random().map(Self)
    }
}

impl ApprovalId {
    /// A random id.
    ///
    /// # Errors
    ///
    /// If the operating system has no random source to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        random().map(Self)
    }
}

fn random() -> Result<[u8; 16], getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
