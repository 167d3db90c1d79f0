//! The file, before SQLite has it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// Makes the directory and the file if they are missing, and sees that nobody else can get at them.
pub(crate) fn prepare(path: &Path) -> Result<(), OpenError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    if !directory.exists() {
        make_directory(directory).map_err(io(directory))?;
    }
    private::check_directory(directory)?;
    if is_remote(directory) {
        return Err(OpenError::NetworkFileSystem { path: path.to_owned() });
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    private::only_ours(&mut options);
    match options.open(path) {
        Ok(file) => private::check_file(&file).map_err(io(path)),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            Err(OpenError::ReadOnly { path: path.to_owned() })
        }
        Err(source) => Err(OpenError::Io { path: path.to_owned(), source }),
    }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(unix)]
mod private {
    use std::fs::{File, OpenOptions, Permissions};
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};

    use super::{OpenError, Path, PathBuf, fs, io};

    pub(super) fn check_directory(directory: &Path) -> Result<(), OpenError> {
        let path = || PathBuf::from(directory);
        let metadata = fs::metadata(directory).map_err(|source| OpenError::Io { path: path(), source })?;
        if !metadata.is_dir() {
            let source = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(OpenError::Io { path: path(), source });
        }
        if metadata.permissions().mode() & 0o022 != 0 {
            return Err(OpenError::OpenToOthers { path: path() });
        }
        Ok(())
    }

    pub(super) fn only_ours(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    /// SQLite makes the log with the mode of the file.
    pub(super) fn check_file(file: &File) -> io::Result<()> {
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(())
    }
}

#[cfg(not(unix))]
mod private {
    use std::fs::{File, OpenOptions};

    use super::{OpenError, Path, io};

    pub(super) fn check_directory(_directory: &Path) -> Result<(), OpenError> {
        Ok(())
    }

    pub(super) fn only_ours(_options: &mut OpenOptions) {}

    pub(super) fn check_file(_file: &File) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the directory lies on a network file system. `statfs(2)` has the numbers.
#[cfg(target_os = "linux")]
fn is_remote(directory: &Path) -> bool {
    const NFS: u64 = 0x6969;
    const SMB: u64 = 0x517b;
    const SMB2: u64 = 0xfe53_4d42;
    const CIFS: u64 = 0xff53_4d42;
    const AFS: u64 = 0x5346_414f;
    const CODA: u64 = 0x7375_7245;
    const CEPH: u64 = 0x00c3_6400;
    const V9FS: u64 = 0x0102_1997;
    const FUSE: u64 = 0x6573_5546;
    let Ok(found) = rustix::fs::statfs(directory) else {
        return false;
    };
    // The width of the number is the system's business.
    let kind = u64::try_from(found.f_type).unwrap_or_default() & 0xffff_ffff;
    [NFS, SMB, SMB2, CIFS, AFS, CODA, CEPH, V9FS, FUSE].contains(&kind)
}

#[cfg(not(target_os = "linux"))]
fn is_remote(_directory: &Path) -> bool {
    false
}
