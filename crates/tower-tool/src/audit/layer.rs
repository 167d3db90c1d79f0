use std::sync::Arc;

use tower_layer::Layer;
use tower_tool_core::{Clock, SystemClock};

use super::record::Point;
use super::service::Audit;
use super::trail::Trail;
use crate::redact::Redactor;

/// Records every call. See the [module docs](super).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct AuditLayer {
    pub(crate) trail: Arc<dyn Trail>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) redactor: Redactor,
    pub(super) point: Point,
}

impl AuditLayer {
    /// Records every call. Belongs outermost.
    pub fn new(trail: impl Trail) -> Self {
        Self::shared(Arc::new(trail))
    }

    /// Records every call, in a trail that others write to as well.
    pub fn shared(trail: Arc<dyn Trail>) -> Self {
        Self { trail, clock: Arc::new(SystemClock), redactor: Redactor::new(), point: Point::Call }
    }

    /// Records every execution instead. Belongs directly around the tool.
    pub fn execution(mut self) -> Self {
        self.point = Point::Execution;
        self
    }

    /// What masks the arguments in records.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// The clock that dates the records.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

impl<S> Layer<S> for AuditLayer {
    type Service = Audit<S>;

    fn layer(&self, inner: S) -> Audit<S> {
        Audit::new(inner, self.clone())
    }
}
