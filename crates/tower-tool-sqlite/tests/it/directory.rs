use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A directory of one test alone, removed in the end.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tower-tool-sqlite-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("ledger.db")
    }

    /// Waits until nobody has the file open any more: the last one takes the log away.
    pub(crate) fn until_closed(&self) {
        let log = self.0.join("ledger.db-wal");
        for _ in 0..2_000 {
            if !log.exists() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        panic!("somebody has the file open");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
