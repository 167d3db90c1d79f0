//! The numbers of tickets: counted within a day, and never given twice.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tower_tool::{Clock, Timestamp};

/// The tickets and hand-offs of this desk. Clones share them.
#[derive(Clone, Debug)]
pub struct Tickets {
    clock: Arc<dyn Clock>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug)]
enum Kept {
    Memory(State),
    /// In this directory, for all desks that share it, and after a restart.
    Directory(PathBuf),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    /// The day of the last number, as `YYYYMMDD`.
    day: String,
    /// The last number of that day.
    number: u32,
    /// How many numbers were given in all.
    opened: usize,
}

impl State {
    fn next(&mut self, now: Timestamp) -> String {
        let today = date(now).replace('-', "");
        // A clock that was put back a day must not give the same numbers again.
        if today > self.day {
            self.day = today;
            self.number = 0;
        }
        self.number += 1;
        self.opened += 1;
        format!("TK-{}-{:04}", self.day, self.number)
    }

    fn read(directory: &Path) -> io::Result<Self> {
        match fs::read(directory.join("tickets.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// In one piece, and on the disk before a number is given.
    fn write(&self, directory: &Path) -> io::Result<()> {
        let (whole, part) = (directory.join("tickets.json"), directory.join("tickets.json.new"));
        let mut file = File::create(&part)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(part, whole)?;
        File::open(directory)?.sync_all()
    }
}

impl Tickets {
    pub(crate) fn in_memory(clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), kept: Arc::new(Mutex::new(Kept::Memory(State::default()))) }
    }

    /// In a directory that is there.
    pub(crate) fn open(directory: &Path, clock: impl Clock) -> io::Result<Self> {
        State::read(directory)?;
        Ok(Self { clock: Arc::new(clock), kept: Arc::new(Mutex::new(Kept::Directory(directory.to_owned()))) })
    }

    /// How many tickets and hand-offs were opened so far.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub fn opened(&self) -> io::Result<usize> {
        match &*self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            Kept::Memory(state) => Ok(state.opened),
            Kept::Directory(directory) => Ok(State::read(directory)?.opened),
        }
    }

    /// The next serial, `TK-YYYYMMDD-NNNN`, and the moment it was given. Waits for the disk.
    pub(crate) fn next(&self) -> io::Result<(String, Timestamp)> {
        let now = self.clock.now();
        // Counting leaves the state whole, so a poisoned lock says nothing.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = match &mut *kept {
            Kept::Memory(state) => state.next(now),
            Kept::Directory(directory) => {
                let lock = OpenOptions::new().create(true).append(true).open(directory.join("tickets.lock"))?;
                // Other desks wait, until the file is closed.
                lock.lock()?;
                let mut state = State::read(directory)?;
                let serial = state.next(now);
                state.write(directory)?;
                serial
            }
        };
        Ok((serial, now))
    }
}

/// The date in UTC, `YYYY-MM-DD`.
pub(crate) fn date(at: Timestamp) -> String {
    at.to_string().chars().take_while(|character| *character != 'T').collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower_tool_test::FakeClock;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn serials_count_within_a_day_and_are_never_given_twice() {
        let directory = std::env::temp_dir().join(format!("support-desk-serials-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        for kept in [None, Some(&directory)] {
            let clock = FakeClock::new();
            let tickets = || match kept {
                None => Tickets::in_memory(clock.clone()),
                Some(directory) => Tickets::open(directory, clock.clone()).unwrap(),
            };
            let mut desk = tickets();
            let mut next = || {
                // Where they are kept, a desk that starts again goes on.
                if kept.is_some() {
                    desk = tickets();
                }
                desk.next().unwrap().0
            };
            assert_eq!(next(), "TK-20261130-0001");
            assert_eq!(next(), "TK-20261130-0002");
            clock.step_forward(DAY);
            assert_eq!(next(), "TK-20261201-0001");
            clock.step_back(DAY + Duration::from_secs(1));
            assert_eq!(next(), "TK-20261201-0002");
            assert_eq!(desk.opened().unwrap(), 4);
        }
        fs::write(directory.join("tickets.json"), "{").unwrap();
        assert!(Tickets::open(&directory, FakeClock::new()).is_err(), "what cannot be read is not begun anew");
        fs::remove_dir_all(directory).unwrap();
    }
}
