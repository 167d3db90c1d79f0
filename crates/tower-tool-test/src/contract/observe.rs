//! How the suite watches futures.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long something may take that should happen.
const DEADLINE: Duration = Duration::from_secs(60);

/// How often everything else gets its turn before nothing more is expected to happen.
pub(super) const TURNS: usize = 64;

/// Waits for what should happen.
pub(super) async fn within<F: Future>(what: &str, future: F) -> Result<F::Output, String> {
    tokio::time::timeout(DEADLINE, future).await.map_err(|_| format!("a minute passed without {what}"))
}

/// Lets everything else run that can, without letting time pass.
pub(super) async fn settle() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// The message of a panic inside `future`, or what it gives.
pub(super) async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(message(&*payload))),
    })
    .await
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("not with a text").to_owned()
}

/// A future that counts how often it is polled.
pub(super) struct Counted<F> {
    future: Pin<Box<F>>,
    polls: Arc<AtomicUsize>,
}

impl<F: Future> Counted<F> {
    pub(super) fn new(future: F) -> (Self, Arc<AtomicUsize>) {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Self { future: Box::pin(future), polls: Arc::clone(&polls) };
        (counted, polls)
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(cx)
    }
}

/// Whether the outermost type of this name is neither a box, nor a closure or the future of an `async` block.
pub(super) fn is_named(type_name: &str) -> bool {
    let mut outermost = String::new();
    let mut depth = 0_usize;
    let mut last = ' ';
    for letter in type_name.chars() {
        match letter {
            '<' => depth += 1,
            // Not the arrow of a function type.
            '>' if last != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => outermost.push(letter),
            _ => {}
        }
        last = letter;
    }
    let boxed = matches!(outermost.as_str(), "core::pin::Pin" | "alloc::boxed::Box");
    let anonymous = outermost.rsplit("::").next().is_some_and(|segment| segment.contains('{'));
    !boxed && !anonymous
}

#[cfg(test)]
mod tests {
    use std::any::{type_name, type_name_of_val};

    use super::*;

    #[test]
    fn boxes_and_anonymous_futures_have_no_name() {
        struct Local;
        impl Local {
            fn call(self) -> impl Future {
                async move { self }
            }
        }
        type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

        assert!(!is_named(type_name::<Boxed>()));
        assert!(!is_named(type_name::<Box<Boxed>>()));
        assert!(!is_named(type_name_of_val(&async {})));
        assert!(!is_named(type_name_of_val(&Local.call())));
        assert!(!is_named(type_name_of_val(&|| ())));
        assert!(is_named(type_name::<crate::probe::ResponseFuture>()));
        assert!(is_named(type_name::<std::future::Ready<Boxed>>()));
        assert!(is_named(type_name_of_val(&std::future::poll_fn(|_| { Poll::Ready(()) }))));
    }

    #[tokio::test]
    async fn a_panic_is_caught_with_its_message() {
        let panicking = async {
            tokio::task::yield_now().await;
            panic!("number {}", 7);
        };
        assert_eq!(caught(panicking).await, Err("number 7".to_owned()));
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }
}
