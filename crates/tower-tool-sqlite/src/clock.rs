//! Store time: one clock for all processes that share the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OptionalExtension as _, params};
use tower_tool_core::{Clock, SystemClock, Timestamp};

/// Where store time comes from.
#[derive(Debug)]
pub(crate) enum StoreClock {
    /// As it was given.
    Given(Arc<dyn Clock>),
    /// So many milliseconds after the machine was started.
    SinceStart { started_at: u64 },
    /// The wall clock, held from going back.
    Wall { latest: AtomicU64 },
}

impl StoreClock {
    /// Store time as the file has it. Within the transaction that opens the file, so that processes agree.
    pub(crate) fn of_file(connection: &Connection) -> rusqlite::Result<Self> {
        let latest = latest(connection)?;
        let Some((start, uptime)) = since_start() else {
            return Ok(Self::Wall { latest: AtomicU64::new(latest) });
        };
        let known: Option<(Vec<u8>, i64)> = connection
            .query_row("SELECT start, started_at FROM clock WHERE one = 1", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((_, started_at)) = known.filter(|(known, _)| *known == start) {
            return Ok(Self::SinceStart { started_at: u64::try_from(started_at).unwrap_or_default() });
        }
        let now = SystemClock.now().as_millis().max(latest);
        let started_at = now.saturating_sub(uptime);
        connection.execute(
            "INSERT OR REPLACE INTO clock (one, start, started_at, latest) VALUES (1, ?1, ?2, ?3)",
            params![start, i64::try_from(started_at).unwrap_or(i64::MAX), i64::try_from(now).unwrap_or(i64::MAX)],
        )?;
        Ok(Self::SinceStart { started_at })
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Given(clock) => clock.now(),
            Self::SinceStart { started_at } => {
                // It was there when the file was opened, and does not go away.
                let uptime = since_start_ms().unwrap_or_default();
                Timestamp::from_millis(started_at.saturating_add(uptime))
            }
            Self::Wall { latest } => {
                let now = SystemClock.now().as_millis();
                Timestamp::from_millis(latest.fetch_max(now, Ordering::AcqRel).max(now))
            }
        }
    }

    /// Remembers the time, for when the machine starts anew.
    pub(crate) fn remember(&self, connection: &Connection) -> rusqlite::Result<()> {
        if matches!(self, Self::Given(_)) {
            return Ok(());
        }
        let now = i64::try_from(self.now().as_millis()).unwrap_or(i64::MAX);
        let updated =
            connection.prepare_cached("UPDATE clock SET latest = max(latest, ?1) WHERE one = 1")?.execute([now])?;
        if updated == 0 {
            connection.execute("INSERT INTO clock (one, start, started_at, latest) VALUES (1, x'', 0, ?1)", [now])?;
        }
        Ok(())
    }
}

/// The latest time that the file has seen.
fn latest(connection: &Connection) -> rusqlite::Result<u64> {
    let latest: Option<i64> =
        connection.query_row("SELECT latest FROM clock WHERE one = 1", [], |row| row.get(0)).optional()?;
    Ok(latest.and_then(|latest| u64::try_from(latest).ok()).unwrap_or_default())
}

/// Which start of the machine this is, and how many milliseconds ago it was.
fn since_start() -> Option<(Vec<u8>, u64)> {
    let start = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    Some((start, since_start_ms()?))
}

#[cfg(target_os = "linux")]
fn since_start_ms() -> Option<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(seconds * 1_000 + u64::try_from(time.tv_nsec).ok()? / 1_000_000)
}

#[cfg(not(target_os = "linux"))]
fn since_start_ms() -> Option<u64> {
    None
}
