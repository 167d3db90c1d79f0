//! The future that most of our layers answer with: pass on, work something out first, or refuse.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_tool_core::{BoxFuture, LayerError, ToolError, ToolOutput};

pin_project! {
    #[project = GateProj]
    pub(crate) enum Gate<F> {
        Pass { #[pin] inner: F },
        Later { future: BoxFuture<'static, Result<ToolOutput, ToolError>> },
        Refuse { error: Option<ToolError> },
    }
}

impl<F> Gate<F> {
    pub(crate) fn refuse(error: ToolError) -> Self {
        Self::Refuse { error: Some(error) }
    }

    pub(crate) fn later(future: impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'static) -> Self {
        Self::Later { future: Box::pin(future) }
    }
}

impl<F, E> Future for Gate<F>
where
    F: Future<Output = Result<ToolOutput, E>>,
    E: LayerError,
{
    type Output = Result<ToolOutput, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            GateProj::Pass { inner } => Poll::Ready(ready!(inner.poll(cx)).map_err(LayerError::into_tool_error)),
            GateProj::Later { future } => future.as_mut().poll(cx),
            // Polled again after the refusal was taken: nothing more will come.
            GateProj::Refuse { error } => error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
        }
    }
}

/// A layer's own response future around a [`Gate`], so that its type has a name.
macro_rules! gated_future {
    ($(#[$doc:meta])* $name:ident) => {
        pin_project_lite::pin_project! {
            $(#[$doc])*
            pub struct $name<F> {
                #[pin]
                gate: $crate::gate::Gate<F>,
            }
        }

        impl<F> $name<F> {
            pub(crate) fn new(gate: $crate::gate::Gate<F>) -> Self {
                Self { gate }
            }
        }

        impl<F, E> Future for $name<F>
        where
            F: Future<Output = Result<tower_tool_core::ToolOutput, E>>,
            E: tower_tool_core::LayerError,
        {
            type Output = Result<tower_tool_core::ToolOutput, tower_tool_core::ToolError>;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                self.project().gate.poll(cx)
            }
        }

        impl<F> std::fmt::Debug for $name<F> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

/// The accessors that every service of ours has.
macro_rules! inner_service_accessors {
    () => {
        /// The inner service.
        pub fn get_ref(&self) -> &S {
            &self.inner
        }

        /// The inner service.
        pub fn get_mut(&mut self) -> &mut S {
            &mut self.inner
        }

        /// Takes the inner service out.
        pub fn into_inner(self) -> S {
            self.inner
        }
    };
}

pub(crate) use {gated_future, inner_service_accessors};
