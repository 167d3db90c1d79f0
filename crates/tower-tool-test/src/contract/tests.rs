//! The suite is only as good as what it refuses: good layers pass, tower's own among them, and each fault is named.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;
use tower::util::Oneshot;
use tower_layer::{Identity, layer_fn};
use tower_tool_core::{BoxFuture, Risk, ToolError, ToolErrorKind, ToolOutput};

use super::*;
use crate::{MockTool, call};

type Answered = Result<ToolOutput, ToolError>;

fn contract<L>(layer: L) -> LayerContract<L, impl Fn() -> ToolCall> {
    let tool = MockTool::new("get_status", Risk::PublicRead);
    LayerContract::new(layer, move || tool.prepared(json!({}), call::context()))
}

// ===== good layers =====

/// Decides after a wait: always ready, with an inner service of its own.
#[derive(Clone, Debug)]
struct AlwaysReady<S>(S);

impl<S: Service<ToolCall> + Clone> Service<ToolCall> for AlwaysReady<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Oneshot<S, ToolCall>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        self.0.clone().oneshot(call)
    }
}

/// Lets what has begun go on without its caller.
#[derive(Clone, Debug)]
struct Detaching<S>(S);

struct Detached(JoinHandle<Answered>);

impl Service<ToolCall> for Detaching<Probe> {
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = Detached;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        Poll::Ready(Ok(()))
    }

    #[expect(clippy::disallowed_methods, reason = "the suite must cope with tasks that nobody owns")]
    fn call(&mut self, call: ToolCall) -> Detached {
        Detached(tokio::spawn(self.0.clone().oneshot(call)))
    }
}

impl Future for Detached {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered> {
        let joined = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(joined.unwrap_or_else(|error| Err(ToolError::maybe_done(error))))
    }
}

/// Never fails, as an envelope.
#[derive(Clone, Debug)]
struct Enveloping(Probe);

struct Enveloped(Oneshot<Probe, ToolCall>);

impl Service<ToolCall> for Enveloping {
    type Response = Answered;
    type Error = Infallible;
    type Future = Enveloped;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ToolCall) -> Enveloped {
        Enveloped(self.0.clone().oneshot(call))
    }
}

impl Future for Enveloped {
    type Output = Result<Answered, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Ok)
    }
}

#[tokio::test(start_paused = true)]
async fn good_layers_pass() {
    contract(Identity::new()).check().await;
    contract(layer_fn(AlwaysReady::<Probe>)).check().await;
    contract(layer_fn(Detaching::<Probe>)).detaches().check().await;
    contract(layer_fn(Enveloping)).answers_failures().check().await;
}

#[tokio::test(start_paused = true)]
async fn layers_of_tower_pass() {
    contract(ConcurrencyLimitLayer::new(1)).check().await;
    contract(LoadShedLayer::new()).check().await;
    contract(TimeoutLayer::new(Duration::from_secs(1))).check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_layers_pass_in_real_time_too() {
    contract(layer_fn(AlwaysReady::<Probe>)).check().await;
    contract(layer_fn(Detaching::<Probe>)).detaches().check().await;
}

#[tokio::test(start_paused = true)]
async fn the_suite_asks_for_fewer_than_a_hundred_calls() {
    let calls = AtomicUsize::new(0);
    let tool = MockTool::new("get_status", Risk::PublicRead);
    let counting = || {
        calls.fetch_add(1, Ordering::Relaxed);
        tool.prepared(json!({}), call::context())
    };
    LayerContract::new(Identity::new(), counting).check().await;
    let calls = calls.into_inner();
    assert!((1..100).contains(&calls), "{calls}");
}

// ===== faults =====

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    CallsTheClone,
    LosesTheWakeUpForReadiness,
    RemembersReadinessInClones,
    KeepsTheReadyInstance,
    ForgetsItsPermit,
    KeepsTheFuture,
    LocksAroundTheCall,
    LocksAroundThePoll,
    TurnsAPanicIntoSuccess,
    CallsTheDeadInstance,
    AnswersForTheDeadInstance,
    PollsTheDeadInstanceAgain,
    ShowsItsToken,
    WakesItself,
    WakesItselfForReadiness,
    LosesTheWakeUpOfTheAnswer,
    PanicsAtTheSecondCall,
    Refuses,
}

const TOKEN: &str = "hunter2";

/// What the instances of a faulty layer share.
#[derive(Default)]
struct Shared {
    lock: Mutex<()>,
    /// What should have been dropped.
    attic: Mutex<Vec<Box<dyn Any + Send>>>,
    taken: AtomicUsize,
    calls: AtomicUsize,
}

struct Faulty {
    inner: Option<Probe>,
    fault: Fault,
    ready: bool,
    shared: Arc<Shared>,
}

struct FaultyFuture {
    inner: Option<BoxFuture<'static, Answered>>,
    fault: Fault,
    shared: Arc<Shared>,
}

fn faulty(fault: Fault) -> impl Layer<Probe, Service = Faulty> + Clone + fmt::Debug + Send + Sync {
    layer_fn(move |probe| Faulty { inner: Some(probe), fault, ready: false, shared: Arc::default() })
}

impl Clone for Faulty {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            fault: self.fault,
            ready: self.ready && self.fault == Fault::RemembersReadinessInClones,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::ShowsItsToken if self.ready => write!(f, "Faulty {{ token: {TOKEN:?} }}"),
            _ => f.write_str("Faulty"),
        }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        if self.ready && self.fault == Fault::KeepsTheReadyInstance {
            let mut attic = self.shared.attic.lock().unwrap();
            attic.push(Box::new(self.inner.take()));
        }
    }
}

impl Service<ToolCall> for Faulty {
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = FaultyFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        const PERMITS: usize = 4;
        if self.ready {
            return Poll::Ready(Ok(()));
        }
        if self.fault == Fault::ForgetsItsPermit && self.shared.taken.load(Ordering::Relaxed) >= PERMITS {
            return Poll::Pending;
        }
        let inner = self.inner.as_mut().unwrap();
        let polled = match self.fault {
            Fault::LosesTheWakeUpForReadiness => inner.poll_ready(&mut Context::from_waker(Waker::noop())),
            Fault::PollsTheDeadInstanceAgain => {
                let _ = ready!(inner.poll_ready(cx));
                inner.poll_ready(cx)
            }
            _ => inner.poll_ready(cx),
        };
        if polled.is_pending() && self.fault == Fault::WakesItselfForReadiness {
            cx.waker().wake_by_ref();
        }
        let answered = match ready!(polled) {
            Err(_) if self.fault == Fault::CallsTheDeadInstance => Ok(()),
            Err(_) if self.fault == Fault::AnswersForTheDeadInstance => {
                self.inner = None;
                Ok(())
            }
            answered => answered,
        };
        self.ready = answered.is_ok();
        if self.ready {
            self.shared.taken.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(answered)
    }

    fn call(&mut self, call: ToolCall) -> FaultyFuture {
        self.ready = false;
        let count = self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let inner: BoxFuture<'static, Answered> = match (self.fault, &mut self.inner) {
            (_, None) => Box::pin(async { Ok(json!("all is well").into()) }),
            (Fault::CallsTheClone, Some(inner)) => Box::pin(inner.clone().call(call)),
            (Fault::LocksAroundTheCall, Some(inner)) => {
                let _locked = self.shared.lock.lock().unwrap();
                Box::pin(inner.call(call))
            }
            (Fault::PanicsAtTheSecondCall, _) if count == 1 => panic!("at the second call"),
            (Fault::Refuses, _) => Box::pin(async { Err(ToolError::new(ToolErrorKind::PermissionDenied, "refused")) }),
            (_, Some(inner)) => Box::pin(inner.call(call)),
        };
        FaultyFuture { inner: Some(inner), fault: self.fault, shared: Arc::clone(&self.shared) }
    }
}

impl Future for FaultyFuture {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered> {
        let Self { inner, fault, shared } = &mut *self;
        let inner = inner.as_mut().unwrap().as_mut();
        let polled = match fault {
            Fault::LocksAroundThePoll => {
                let _locked = shared.lock.lock().unwrap();
                inner.poll(cx)
            }
            Fault::TurnsAPanicIntoSuccess => catch_unwind(AssertUnwindSafe(|| inner.poll(cx)))
                .unwrap_or_else(|_| Poll::Ready(Ok(json!("all is well").into()))),
            Fault::LosesTheWakeUpOfTheAnswer => inner.poll(&mut Context::from_waker(Waker::noop())),
            _ => inner.poll(cx),
        };
        if polled.is_pending() && *fault == Fault::WakesItself {
            cx.waker().wake_by_ref();
        }
        let answered = ready!(polled);
        shared.taken.fetch_sub(1, Ordering::Relaxed);
        Poll::Ready(answered)
    }
}

impl Drop for FaultyFuture {
    fn drop(&mut self) {
        if self.fault == Fault::KeepsTheFuture {
            let mut attic = self.shared.attic.lock().unwrap();
            attic.push(Box::new(self.inner.take()));
        }
    }
}

async fn broken_by(fault: Fault) -> String {
    let verified = contract(faulty(fault)).secret(TOKEN).verify().await;
    verified.map_or_else(|broken| broken.to_string(), |()| "nothing".to_owned())
}

/// A future without a name. The rest is as it should be.
#[derive(Clone, Debug)]
struct Boxing(Probe);

impl Service<ToolCall> for Boxing {
    type Response = ToolOutput;
    type Error = ToolError;
    type Future = BoxFuture<'static, Answered>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ToolError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, call: ToolCall) -> Self::Future {
        Box::pin(self.0.call(call))
    }
}

/// What is found first, and how it shows.
const FAULTS: &[(Fault, Property, &str)] = &[
    (Fault::CallsTheClone, Property::Readiness, "called that had not reported ready"),
    (Fault::LosesTheWakeUpForReadiness, Property::Readiness, "without an answer although the inner service is ready"),
    (Fault::RemembersReadinessInClones, Property::CloneResetsReservation, "called that had not reported ready"),
    (Fault::KeepsTheReadyInstance, Property::DropBeforeCall, "1 reserved, 0 in flight"),
    (Fault::ForgetsItsPermit, Property::DropBeforeCall, "a minute passed without readiness"),
    (Fault::KeepsTheFuture, Property::DropBeforeCall, "0 reserved, 1 in flight"),
    (Fault::LocksAroundTheCall, Property::PanicInside, "the layer panicked"),
    (Fault::LocksAroundThePoll, Property::PanicInside, "the layer panicked"),
    (Fault::TurnsAPanicIntoSuccess, Property::PanicInside, "a panic in the inner future was answered with success"),
    (Fault::CallsTheDeadInstance, Property::ReadinessFailure, "called whose readiness had failed"),
    (Fault::AnswersForTheDeadInstance, Property::ReadinessFailure, "the failure was swallowed"),
    (Fault::PollsTheDeadInstanceAgain, Property::ReadinessFailure, "polled again whose readiness had failed"),
    (Fault::ShowsItsToken, Property::NoSecretsInDebug, "a ready service shows secret 1 of those given"),
    (Fault::WakesItself, Property::WakeUps, "turns while the inner service holds its answer"),
    (Fault::WakesItselfForReadiness, Property::WakeUps, "turns while the inner service is not ready"),
    (Fault::LosesTheWakeUpOfTheAnswer, Property::WakeUps, "without an answer after the inner service's"),
    (Fault::PanicsAtTheSecondCall, Property::Readiness, "the layer panicked: at the second call"),
    (Fault::Refuses, Property::Readiness, "a call failed that should be let through"),
];

#[tokio::test(start_paused = true)]
async fn every_fault_is_found_and_named() {
    assert_eq!(broken_by(Fault::None).await, "nothing");
    for &(fault, property, how) in FAULTS {
        let broken = broken_by(fault).await;
        assert!(broken.starts_with(&format!("the layer breaks `{property}`: ")), "{fault:?}: {broken}");
        assert!(broken.contains(how), "{fault:?}: {broken}");
        assert!(!broken.contains(TOKEN), "{fault:?}: {broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_drop_leaves_behind_is_found_at_each_point() {
    for (fault, property) in
        [(Fault::KeepsTheReadyInstance, Property::DropBeforeCall), (Fault::KeepsTheFuture, Property::DropDuringCall)]
    {
        let found = contract(faulty(fault)).verify_one(property).await;
        assert_eq!(found.unwrap_err().property(), property, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn detaching_must_be_said_and_done() {
    let unsaid = contract(layer_fn(Detaching::<Probe>)).verify().await;
    assert_eq!(unsaid.unwrap_err().property(), Property::DropDuringCall);
    let undone = contract(Identity::new()).detaches().verify().await;
    assert_eq!(undone.unwrap_err().property(), Property::DropDuringCall);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the layer breaks `named future`: the response future is `core::pin::Pin")]
async fn a_failed_check_names_the_property() {
    contract(layer_fn(Boxing)).check().await;
}

#[test]
#[should_panic(expected = "an empty secret is shown by every text")]
fn an_empty_secret_is_refused() {
    let _ = contract(Identity::new()).secret("");
}
