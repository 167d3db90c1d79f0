use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tower_tool_core::{Clock, Timestamp};

/// 2026-11-30T12:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_796_040_000_000);

/// A wall clock that follows tokio's time, so that timers and timestamps move together.
///
/// Under paused time it stands still until the test moves it. The wall clock can also be stepped by itself, as an
/// administrator or a leap of NTP would. Clones are the same clock.
///
/// ```
/// use std::time::Duration;
/// use tower_tool_core::Clock;
/// use tower_tool_test::FakeClock;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = FakeClock::new();
/// assert_eq!(clock.now().to_string(), "2026-11-30T12:00:00.000Z");
/// clock.advance(Duration::from_secs(60)).await;
/// clock.step_back(Duration::from_secs(3600));
/// assert_eq!(clock.now().to_string(), "2026-11-30T11:01:00.000Z");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FakeClock {
    start: Timestamp,
    origin: Instant,
    /// Milliseconds that the wall clock was stepped by.
    stepped: Arc<AtomicI64>,
}

impl FakeClock {
    /// A clock that shows 2026-11-30T12:00:00Z now.
    ///
    /// Outside a runtime it follows the monotonic clock of the system.
    pub fn new() -> Self {
        Self::at(START)
    }

    /// A clock that shows `start` now.
    pub fn at(start: Timestamp) -> Self {
        Self { start, origin: Instant::now(), stepped: Arc::default() }
    }

    /// Lets time pass, for this clock and for every timer of the runtime.
    ///
    /// # Panics
    ///
    /// If tokio's time is not paused, or outside a `current_thread` runtime, as [`tokio::time::advance`] does.
    pub async fn advance(&self, duration: Duration) {
        tokio::time::advance(duration).await;
    }

    /// Steps the wall clock forward. Timers do not notice.
    pub fn step_forward(&self, by: Duration) {
        self.step(millis(by));
    }

    /// Steps the wall clock back, to the Unix epoch at most. Timers do not notice.
    pub fn step_back(&self, by: Duration) {
        self.step(-millis(by));
    }

    fn step(&self, by: i64) {
        let step = |stepped: i64| Some(stepped.saturating_add(by));
        // The closure always gives a value, so this cannot fail.
        let _ = self.stepped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
    }
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let passed = Instant::now().saturating_duration_since(self.origin);
        let unstepped = (self.start + passed).as_millis();
        Timestamp::from_millis(unstepped.saturating_add_signed(self.stepped.load(Ordering::Relaxed)))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stands_still_until_it_is_moved() {
        let clock = FakeClock::new();
        let before = clock.now();
        tokio::task::yield_now().await;
        assert_eq!(clock.now(), before);
        clock.clone().advance(Duration::from_millis(7)).await;
        assert_eq!(clock.now(), before + Duration::from_millis(7));
    }

    #[tokio::test(start_paused = true)]
    async fn timers_move_it_and_steps_do_not_move_timers() {
        let clock = FakeClock::at(Timestamp::from_millis(5_000));
        let timer = tokio::time::timeout(Duration::from_secs(2), std::future::pending::<()>());
        clock.step_forward(Duration::from_secs(100));
        assert_eq!(clock.now(), Timestamp::from_millis(105_000));
        assert!(timer.await.is_err());
        assert_eq!(clock.now(), Timestamp::from_millis(107_000));
    }

    #[test]
    fn works_outside_a_runtime_and_never_shows_less_than_the_epoch() {
        let clock = FakeClock::new();
        assert!(clock.now() >= START);
        clock.step_back(Duration::MAX);
        clock.step_back(Duration::MAX);
        assert_eq!(clock.now(), Timestamp::from_millis(0));
    }
}
