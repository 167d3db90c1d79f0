//! Store time: one clock for all processes that share the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, params};
use tower_tool_core::{Clock, Timestamp};

/// Where store time comes from.
#[derive(Debug)]
pub(crate) enum StoreClock {
    /// As it was given.
    Given(Arc<dyn Clock>),
    /// So many milliseconds after the machine was started.
    SinceStart { started_at: u64 },
    /// The wall clock, held from going back.
    Wall { clock: Arc<dyn Clock>, latest: AtomicU64 },
}

/// Which start of the machine this is, and how many milliseconds ago it was.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    id: Vec<u8>,
    uptime: u64,
}

impl Start {
    /// The present one, where the system tells.
    pub(crate) fn present() -> Option<Self> {
        Some(Self { id: std::fs::read("/proc/sys/kernel/random/boot_id").ok()?, uptime: uptime()? })
    }
}

impl StoreClock {
    /// Store time as the file has it. Within the transaction that opens the file, so that processes agree.
    pub(crate) fn of_file(
        connection: &Connection,
        wall: Arc<dyn Clock>,
        start: Option<Start>,
    ) -> rusqlite::Result<Self> {
        let (known, started_at, latest): (Vec<u8>, i64, i64) =
            connection.query_row("SELECT start, started_at, latest FROM clock WHERE one = 1", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let [started_at, latest] = [started_at, latest].map(|time| u64::try_from(time).unwrap_or_default());
        let Some(start) = start else {
            return Ok(Self::Wall { clock: wall, latest: AtomicU64::new(latest) });
        };
        // In the same start it is behind only where the machine was set back as a whole, and the file was not.
        if known == start.id && started_at.saturating_add(start.uptime) >= latest {
            return Ok(Self::SinceStart { started_at });
        }
        let now = if known == start.id { latest } else { wall.now().as_millis().max(latest) };
        let started_at = now.saturating_sub(start.uptime);
        connection.execute(
            "UPDATE clock SET start = ?1, started_at = ?2, latest = ?3 WHERE one = 1",
            params![start.id, signed(started_at), signed(now)],
        )?;
        Ok(Self::SinceStart { started_at })
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Given(clock) => clock.now(),
            // The system told it when the file was opened, and does not stop.
            Self::SinceStart { started_at } => {
                Timestamp::from_millis(started_at.saturating_add(uptime().unwrap_or_default()))
            }
            Self::Wall { clock, latest } => {
                let now = clock.now().as_millis();
                Timestamp::from_millis(latest.fetch_max(now, Ordering::AcqRel).max(now))
            }
        }
    }

    /// What the file has to remember for when the machine starts anew. A clock that was given is not the machine's.
    pub(crate) fn seen(&self) -> i64 {
        match self {
            Self::Given(_) => 0,
            Self::SinceStart { .. } | Self::Wall { .. } => signed(self.now().as_millis()),
        }
    }
}

fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(target_os = "linux")]
fn uptime() -> Option<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(seconds * 1_000 + u64::try_from(time.tv_nsec).ok()? / 1_000_000)
}

#[cfg(not(target_os = "linux"))]
fn uptime() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower_tool_test::FakeClock;

    use super::*;
    use crate::schema;

    const HOUR: Duration = Duration::from_secs(3_600);

    struct Machine {
        file: Connection,
        wall: FakeClock,
        start: Start,
    }

    impl Machine {
        fn new() -> Self {
            let file = Connection::open_in_memory().unwrap();
            schema::migrate(&file, "ledger.db".as_ref()).unwrap();
            let start = Start { id: b"first".to_vec(), uptime: 60_000 };
            // The time between two looks at the wall clock is of no matter here.
            Self { file, wall: FakeClock::new(), start }
        }

        /// When the machine was started, in store time.
        fn open(&self) -> u64 {
            match StoreClock::of_file(&self.file, Arc::new(self.wall.clone()), Some(self.start.clone())).unwrap() {
                StoreClock::SinceStart { started_at } => started_at,
                other => panic!("{other:?}"),
            }
        }

        fn now(&self) -> u64 {
            self.open() + self.start.uptime
        }

        fn restart(&mut self) {
            self.start = Start { id: [&*self.start.id, b"+"].concat(), uptime: 5_000 };
        }
    }

    /// spring-cloud/spring-cloud-gateway#1117
    #[test]
    fn a_step_of_the_wall_clock_is_none_of_store_time() {
        let mut machine = Machine::new();
        let started_at = machine.open();
        for step in [FakeClock::step_forward, FakeClock::step_back, FakeClock::step_back] {
            step(&machine.wall, HOUR);
            machine.start.uptime += 1_000;
            assert_eq!(machine.open(), started_at);
        }
    }

    #[test]
    fn after_a_start_time_is_the_wall_clocks_and_never_behind_what_was_seen() {
        let mut machine = Machine::new();
        let before = machine.now();
        machine.restart();
        machine.wall.step_forward(HOUR);
        let ahead = machine.now();
        assert!(ahead >= before + 3_600_000, "{before} {ahead}");
        machine.restart();
        machine.wall.step_back(HOUR * 2);
        let behind = machine.now();
        assert!((ahead..ahead + 60_000).contains(&behind), "{ahead} {behind}");
    }

    #[test]
    fn a_machine_that_was_set_back_goes_on_where_the_file_is() {
        let mut machine = Machine::new();
        machine.start.uptime = 600_000;
        let before = machine.now();
        machine.file.execute("UPDATE clock SET latest = ?1", [signed(before)]).unwrap();
        machine.start.uptime = 1_000;
        assert_eq!(machine.now(), before);
        assert_eq!(machine.now(), before, "and for all alike");
    }

    #[test]
    fn where_the_system_tells_no_start_the_wall_clock_is_held_from_going_back() {
        let machine = Machine::new();
        machine.file.execute("UPDATE clock SET latest = ?1", [signed(machine.wall.now().as_millis() + 9_000)]).unwrap();
        let clock = StoreClock::of_file(&machine.file, Arc::new(machine.wall.clone()), None).unwrap();
        assert!(clock.now().as_millis() >= machine.wall.now().as_millis() + 8_000);
        machine.wall.step_forward(HOUR);
        let ahead = clock.now();
        machine.wall.step_back(HOUR * 2);
        assert!(clock.now() >= ahead);
    }
}
