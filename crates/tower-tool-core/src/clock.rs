use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment in store time: whole milliseconds since the Unix epoch.
///
/// Written as RFC 3339 with milliseconds, in UTC. It is the only type that records use for a moment, so that seconds and
/// milliseconds cannot be mixed up.
///
/// ```
/// use std::time::Duration;
/// use tower_tool_core::Timestamp;
///
/// let at = Timestamp::from_millis(1_796_083_200_000);
/// assert_eq!(at.to_string(), "2026-12-01T00:00:00.000Z");
/// assert_eq!((at + Duration::from_millis(7)).to_string(), "2026-12-01T00:00:00.007Z");
/// assert_eq!(at.until(at + Duration::from_secs(2)), Duration::from_secs(2));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// The last millisecond of the year 9999, where RFC 3339 ends.
const LAST: u64 = 253_402_300_799_999;

impl Timestamp {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(if millis > LAST { LAST } else { millis })
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time from here to `later`, zero if that has passed.
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_millis(u64::try_from(since.as_millis()).unwrap_or(LAST))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(LAST);
        Self::from_millis(self.0.saturating_add(millis))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_millis(self.0);
        fmt::Display::fmt(&humantime::format_rfc3339_millis(time), f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = humantime::parse_rfc3339(&text).map_err(serde::de::Error::custom)?;
        Ok(Self::from(time))
    }
}

/// Where the time comes from. Stores and layers read it here and nowhere else, so that a test can hold it still.
///
/// ```
/// use tower_tool_core::{Clock, SystemClock};
///
/// assert!(SystemClock.now().as_millis() > 1_700_000_000_000);
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing to add to the system's clock")]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else is given")]
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }
}
