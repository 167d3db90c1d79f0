use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tower_tool_core::store::Io;

use super::{Trail, TrailError};
use crate::audit::AuditRecord;

/// Appends records to a file, one line of JSON each. Clones share the file.
///
/// A call whose line was not written whole is refused, and no record stands on the line of another. The file is readable by its owner alone where the system knows owners.
#[derive(Clone, Debug)]
pub struct JsonLines {
    path: Arc<Path>,
    file: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    file: File,
    /// Whether the last write failed, perhaps half way.
    torn: bool,
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
        Ok(Self { path: path.into(), file: Arc::new(Mutex::new(Shared { file, torn: false })) })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn append(&self, record: &AuditRecord) -> Result<(), TrailError> {
        let mut line = shown_as_it_is(serde_json::to_string(record).map_err(TrailError::new)?);
        line.push('\n');
        // One write under one lock: no two records share a line.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Shared { file, torn } = &mut *file;
        if *torn {
            // Half a line was left when the file could take no more: what follows begins a line of its own.
            line.insert(0, '\n');
        }
        *torn = true;
        file.write_all(line.as_bytes()).map_err(TrailError::new)?;
        *torn = false;
        Ok(())
    }
}

/// JSON escapes the controls below U+0020 itself. What else is a line break to some readers, a command to a terminal, or turns
/// text around, is escaped too, so that a line looks like what it says.
fn shown_as_it_is(json: String) -> String {
    fn deceives(character: char) -> bool {
        character.is_control()
            || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    }
    if !json.contains(deceives) {
        return json;
    }
    let mut shown = String::with_capacity(json.len() + 32);
    for character in json.chars() {
        if deceives(character) {
            // Outside of strings JSON has only ASCII that can be seen, so this stands in one.
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

impl Trail for JsonLines {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        Io::now(self.append(&record))
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        self.append(&record)
    }
}
