//! The file, before SQLite has it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::OpenError;
use crate::remote::is_remote;

/// Makes the directory and the file if they are missing, and gives the path of the file itself, without links.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, OpenError> {
    let path = resolve(path).map_err(|source| OpenError::io(path, source))?;
    let directory = directory_of(&path);
    private::check_directory(directory)?;
    if is_remote(directory) {
        return Err(OpenError::NetworkFileSystem { path });
    }
    make(&path).map_err(|source| OpenError::io(&path, source))?;
    Ok(path)
}

/// Where a link leads: SQLite makes the log beside the file itself. Absolute, so that no name means something else to SQLite.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            let directory = directory_of(path);
            make_directory(directory)?;
            Ok(fs::canonicalize(directory)?.join(name))
        }
        found => found,
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What is new must be found again after a power cut, so the directory above is synced.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let above = directory_of(directory);
    if above != directory {
        make_directory(above)?;
    }
    match private::make_directory(directory) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => private::sync(above),
    }
}

/// Makes the file, with no rights for others from its first moment on. Its name is synced by SQLite, with the log beside it.
///
/// One that is there is not opened. A process that closes any descriptor of a file gives up all its locks on it, those of SQLite
/// too (<https://sqlite.org/howtocorrupt.html>, 2.2), so no handle of this process may be on the file before it is closed here.
fn make(path: &Path) -> io::Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private::only_ours(&mut options);
    let made = options.open(path).map(drop);
    drop(one);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::metadata(path)?.is_file() {
                Ok(())
            } else {
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
        made => made,
    }
}

pub(crate) use private::{Identity, identity, is_writable, tighten};

#[cfg(unix)]
mod private {
    use std::ffi::OsString;
    use std::fs::{DirBuilder, File, Permissions};
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};

    use super::{OpenError, OpenOptions, Path, PathBuf, directory_of, fs, io};

    pub(super) fn check_directory(directory: &Path) -> Result<(), OpenError> {
        let metadata = fs::metadata(directory).map_err(|source| OpenError::io(directory, source))?;
        if !metadata.is_dir() {
            return Err(OpenError::io(directory, io::ErrorKind::NotADirectory.into()));
        }
        if metadata.permissions().mode() & 0o022 != 0 {
            return Err(OpenError::OpenToOthers { path: directory.to_owned() });
        }
        Ok(())
    }

    pub(super) fn make_directory(directory: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(directory)
    }

    pub(super) fn sync(directory: &Path) -> io::Result<()> {
        match File::open(directory).and_then(|directory| directory.sync_all()) {
            // It may be written, and yet not read; or the file system knows no such sync.
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {
                Ok(())
            }
            synced => synced,
        }
    }

    pub(super) fn only_ours(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    /// Takes the rights of others away from the file and its log. Those that SQLite makes later have the mode of the file.
    pub(crate) fn tighten(path: &Path) -> Result<(), OpenError> {
        for suffix in ["", "-wal", "-shm"] {
            let path = PathBuf::from(OsString::from_iter([path.as_os_str(), suffix.as_ref()]));
            match tighten_one(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(OpenError::io(&path, error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn tighten_one(path: &Path) -> io::Result<()> {
        if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            tracing::warn!(path = %path.display(), "the file was open to others, and is not any more");
        }
        Ok(())
    }

    pub(crate) fn is_writable(path: &Path) -> bool {
        let may = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
        may(path) && may(directory_of(path))
    }

    /// Which file it is, whatever its name is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Identity(u64, u64);

    pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
        let metadata = fs::metadata(path)?;
        Ok(Identity(metadata.dev(), metadata.ino()))
    }
}

#[cfg(not(unix))]
mod private {
    use super::{OpenError, OpenOptions, Path, fs, io};

    pub(super) fn check_directory(_directory: &Path) -> Result<(), OpenError> {
        Ok(())
    }

    pub(super) fn make_directory(directory: &Path) -> io::Result<()> {
        fs::create_dir(directory)
    }

    pub(super) fn sync(_directory: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn only_ours(_options: &mut OpenOptions) {}

    pub(crate) fn tighten(_path: &Path) -> Result<(), OpenError> {
        Ok(())
    }

    pub(crate) fn is_writable(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|metadata| !metadata.permissions().readonly())
    }

    /// A file that is open cannot be removed there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Identity;

    pub(crate) fn identity(_path: &Path) -> io::Result<Identity> {
        Ok(Identity)
    }
}
