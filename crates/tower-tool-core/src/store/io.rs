use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::BoxFuture;

/// An answer that is at hand, or that comes later. A future either way.
///
/// ```
/// use tower_tool_core::store::Io;
///
/// async fn answers() -> (u8, u8) {
///     (Io::now(7).await, Io::later(async { 8 }).await)
/// }
/// ```
#[expect(clippy::exhaustive_enums, reason = "an answer is at hand or it is not")]
pub enum Io<'a, T> {
    /// The answer, until it is taken.
    Now(Option<T>),
    /// The answer comes later.
    Later(BoxFuture<'a, T>),
}

impl<'a, T> Io<'a, T> {
    /// An answer at hand.
    pub const fn now(value: T) -> Self {
        Self::Now(Some(value))
    }

    /// An answer to wait for.
    pub fn later(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Later(Box::pin(future))
    }
}

impl<T: Unpin> Future for Io<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            // A future that is polled after it was ready may stay pending; it must not panic.
            Self::Now(value) => value.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for Io<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Io::Now",
            Self::Later(_) => "Io::Later",
        })
    }
}
