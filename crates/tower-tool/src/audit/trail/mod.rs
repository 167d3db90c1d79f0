//! Where audit records are kept.

mod json_lines;
mod memory;
mod trace;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

pub use json_lines::JsonLines;
pub use memory::MemoryTrail;
pub use trace::Trace;

use tower_tool_core::error::BoxError;
use tower_tool_core::store::Io;

use super::record::AuditRecord;

/// A trail did not take a record.
#[derive(Clone, Debug)]
pub struct TrailError {
    source: Arc<dyn StdError + Send + Sync>,
}

impl TrailError {
    /// For this reason.
    pub fn new(source: impl Into<BoxError>) -> Self {
        Self { source: Arc::from(source.into()) }
    }
}

impl fmt::Display for TrailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the audit trail did not take a record")
    }
}

impl StdError for TrailError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

/// Keeps audit records.
///
/// ```
/// use tower_tool::audit::{AuditRecord, Trail, TrailError};
/// use tower_tool::store::Io;
///
/// /// Keeps nothing, for a benchmark.
/// #[derive(Debug)]
/// struct Nothing;
///
/// impl Trail for Nothing {
///     fn open(&self, _record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
///         Io::now(Ok(()))
///     }
///
///     fn close(&self, _record: AuditRecord) -> Result<(), TrailError> {
///         Ok(())
///     }
/// }
/// ```
pub trait Trail: fmt::Debug + Send + Sync + 'static {
    /// Takes the opening of a call. The call goes on when this is acknowledged.
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>>;

    /// Takes the end of a call. It is called from a destructor too, so it must not wait for long: a trail that writes slowly
    /// queues, and makes room for the end when it takes the opening.
    ///
    /// # Errors
    ///
    /// If the record is lost.
    fn close(&self, record: AuditRecord) -> Result<(), TrailError>;
}

impl<T: Trail + ?Sized> Trail for Arc<T> {
    fn open(&self, record: AuditRecord) -> Io<'static, Result<(), TrailError>> {
        (**self).open(record)
    }

    fn close(&self, record: AuditRecord) -> Result<(), TrailError> {
        (**self).close(record)
    }
}
