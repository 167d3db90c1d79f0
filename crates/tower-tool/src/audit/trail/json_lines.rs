use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tower_tool_core::store::Io;

use super::{Trail, TrailError};
use crate::audit::AuditRecord;

/// Appends records to a file, one line of JSON each. Clones share the file.
///
/// A line is written whole or the call is refused. The file is readable by its owner alone where the system knows owners.
#[derive(Clone, Debug)]
pub struct JsonLines {
    path: Arc<Path>,
    file: Arc<Mutex<File>>,
}

impl JsonLines {
    /// Opens or creates the file.
    ///
    /// # Errors
    ///
    /// If it cannot be opened for appending.
    pub fn open(path: impl Into<PathBuf>) -> std::io::Result<Self> {
        let path = path.into();
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        Ok(Self { path: path.into(), file: Arc::new(Mutex::new(file)) })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn append(&self, record: &AuditRecord) -> Result<(), TrailError> {
        // JSON escapes line breaks itself; NEL and the Unicode separators are lines to some readers, so they are escaped too.
        let mut line = serde_json::to_string(record).map_err(TrailError::new)?;
        for (separator, escaped) in [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")] {
            if line.contains(separator) {
                line = line.replace(separator, escaped);
            }
        }
        line.push('\n');
        // One write under one lock: no two records share a line.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(TrailError::new)
    }
}

impl Trail for JsonLines {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        Io::now(self.append(&record))
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        self.append(&record)
    }
}
