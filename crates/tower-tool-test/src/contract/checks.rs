//! One function for each property.

use std::any::type_name;
use std::fmt;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::{ToolCall, ToolError, ToolErrorKind};

use super::observe::{Counted, TURNS, caught, is_named, settle, within};
use super::{LayerContract, Property};
use crate::{Answer, Probe, ProbeHandle};

/// `Err` says how the property is broken.
type Checked = Result<(), String>;

/// How often what may leak is tried with a call.
const TIMES: usize = 8;

/// How often what may leak is tried without one.
const MANY_TIMES: usize = 256;

/// How often a future may be polled that has nothing to do.
const HANDFUL: usize = 4;

impl<L, C> LayerContract<L, C>
where
    L: Layer<Probe> + Clone + fmt::Debug + Send + Sync + 'static,
    L::Service: Service<ToolCall, Response: Send + 'static, Error: fmt::Debug + Send + 'static, Future: Send + 'static>
        + Clone
        + fmt::Debug
        + Send
        + Sync
        + 'static,
    C: Fn() -> ToolCall,
{
    pub(super) async fn try_property(&self, property: Property) -> Checked {
        // Boxed: together they are larger than a test's stack should have to hold.
        match property {
            Property::NamedFuture => Self::named_future(),
            Property::Readiness => {
                Box::pin(self.many_calls()).await?;
                Box::pin(self.many_at_once()).await?;
                Box::pin(self.readiness_held()).await
            }
            Property::CloneResetsReservation => Box::pin(self.clone_of_ready()).await,
            Property::DropBeforeCall => {
                Box::pin(self.dropped_ready()).await?;
                Box::pin(self.dropped_unpolled()).await?;
                Box::pin(self.dropped_while_not_ready()).await
            }
            Property::DropDuringCall => Box::pin(self.dropped_half_way()).await,
            Property::PanicInside => {
                Box::pin(self.panic_inside(Panic::InCall)).await?;
                Box::pin(self.panic_inside(Panic::InFuture)).await
            }
            Property::ReadinessFailure => Box::pin(self.readiness_failure()).await,
            Property::NoSecretsInDebug => Box::pin(self.debug()).await,
            Property::WakeUps => {
                Box::pin(self.polls_while_held()).await?;
                Box::pin(self.polls_while_not_ready()).await
            }
        }
    }

    fn around(&self, probe: Probe) -> (L::Service, ProbeHandle) {
        let handle = probe.handle();
        (self.layer.clone().layer(probe), handle)
    }

    fn next_call(&self) -> ToolCall {
        (self.call)()
    }

    fn named_future() -> Checked {
        let name = type_name::<<L::Service as Service<ToolCall>>::Future>();
        if is_named(name) { Ok(()) } else { Err(format!("the response future is `{name}`")) }
    }

    async fn many_calls(&self) -> Checked {
        let (mut service, probe) = self.around(Probe::new());
        for _ in 0..TIMES {
            becomes_ready(&mut service).await?;
            // Made where a layer makes its own, which must not be the one that is called.
            let unready = service.clone();
            let answer = service.call(self.next_call());
            drop(unready);
            clean(&probe)?;
            answers(answer).await?;
            clean(&probe)?;
            idle(&probe).await?;
        }
        self.works(service, &probe).await
    }

    async fn many_at_once(&self) -> Checked {
        let (service, probe) = self.around(Probe::new());
        let mut callers = JoinSet::new();
        for _ in 0..TIMES {
            callers.spawn(service.clone().oneshot(self.next_call()));
        }
        for _ in 0..TIMES {
            ends(&mut callers, "an answer to every one of several calls").await?;
        }
        self.works(service, &probe).await
    }

    async fn readiness_held(&self) -> Checked {
        let (service, probe) = self.around(Probe::new());
        probe.hold_ready();
        let mut callers = JoinSet::new();
        callers.spawn(service.clone().oneshot(self.next_call()));
        settle().await;
        clean(&probe)?;
        probe.open_ready();
        // A layer may refuse to wait, as load shedding does. It may not wait forever.
        ends(&mut callers, "an answer although the inner service is ready").await?;
        clean(&probe)?;
        self.works(service, &probe).await
    }

    async fn clone_of_ready(&self) -> Checked {
        let (mut ready, probe) = self.around(Probe::with_capacity(1));
        becomes_ready(&mut ready).await?;
        let reserved = probe.counts().reserved > 0;
        let mut callers = JoinSet::new();
        callers.spawn(ready.clone().oneshot(self.next_call()));
        settle().await;
        clean(&probe)?;
        if reserved && probe.counts().calls > 0 {
            return Err("a clone was called with the reservation of another instance".to_owned());
        }
        // What the clone did takes nothing away from the instance it was made of.
        answers(ready.call(self.next_call())).await?;
        ends(&mut callers, "an answer to a clone's call").await?;
        clean(&probe)?;
        self.works(ready, &probe).await
    }

    async fn dropped_ready(&self) -> Checked {
        let (service, probe) = self.around(Probe::with_capacity(1));
        for _ in 0..MANY_TIMES {
            let mut ready = service.clone();
            becomes_ready(&mut ready).await?;
            drop(ready);
            idle(&probe).await?;
        }
        self.works(service, &probe).await
    }

    async fn dropped_unpolled(&self) -> Checked {
        let (service, probe) = self.around(Probe::with_capacity(1));
        for _ in 0..TIMES {
            let mut ready = service.clone();
            becomes_ready(&mut ready).await?;
            drop(ready.call(self.next_call()));
            settle().await;
            idle(&probe).await?;
        }
        self.works(service, &probe).await
    }

    async fn dropped_while_not_ready(&self) -> Checked {
        let (service, probe) = self.around(Probe::with_capacity(1));
        for _ in 0..TIMES {
            probe.hold_ready();
            let mut callers = JoinSet::new();
            callers.spawn(service.clone().oneshot(self.next_call()));
            settle().await;
            callers.shutdown().await;
            probe.open_ready();
            settle().await;
            idle(&probe).await?;
        }
        self.works(service, &probe).await
    }

    async fn dropped_half_way(&self) -> Checked {
        let (service, probe) = self.around(Probe::with_capacity(1));
        for _ in 0..TIMES {
            probe.hold();
            let before = probe.counts();
            let mut callers = JoinSet::new();
            callers.spawn(service.clone().oneshot(self.next_call()));
            reaches_inside(&mut callers, &probe).await?;
            callers.shutdown().await;
            if self.detaches {
                settle().await;
                if probe.counts().in_flight == 0 {
                    return Err("the inner call was dropped, but the layer detaches".to_owned());
                }
                probe.release();
                idle(&probe).await?;
                if probe.counts().answered == before.answered {
                    return Err("the inner call did not go on to its answer".to_owned());
                }
            } else {
                idle(&probe).await?;
                if probe.counts().dropped == before.dropped {
                    return Err("the inner call was not dropped with its caller's".to_owned());
                }
                probe.release();
            }
        }
        self.works(service, &probe).await
    }

    async fn panic_inside(&self, place: Panic) -> Checked {
        let (service, probe) = self.around(Probe::with_capacity(1));
        match place {
            Panic::InCall => probe.panic_in_call(),
            Panic::InFuture => probe.answer_once(Answer::panics("the probe panics, as told")),
        }
        let call = caught(service.clone().oneshot(self.next_call()));
        let ended = within("an end of the call that panicked", call).await?;
        if matches!(ended, Ok(Ok(_))) && !self.answers_failures {
            return Err(format!("a panic {place} was answered with success"));
        }
        if probe.counts().panicked == 0 {
            return Err(not_let_through(&ended));
        }
        idle(&probe).await?;
        self.works(service, &probe).await.map_err(|how| format!("after a panic {place}: {how}"))
    }

    async fn readiness_failure(&self) -> Checked {
        let (service, probe) = self.around(Probe::new());
        probe.fail_ready(ToolError::new(ToolErrorKind::Unavailable, "the probe is not ready, as told"));
        let mut failing = service.clone();
        let polled = std::future::poll_fn(|cx| failing.poll_ready(cx));
        let mut reported = within("an answer of `poll_ready`", polled).await?.is_err();
        if !reported {
            let answer = failing.call(self.next_call());
            reported = within("an answer of the call", answer).await?.is_err();
        }
        drop(failing);
        clean(&probe)?;
        if probe.counts().calls > 0 {
            return Err("the inner service was called although it is not ready".to_owned());
        }
        if probe.counts().ready_polls == 0 {
            return Err("the inner service was never asked whether it is ready".to_owned());
        }
        if !reported && !self.answers_failures {
            return Err("the failure was swallowed: the call succeeded".to_owned());
        }
        probe.open_ready();
        self.works(service, &probe).await
    }

    async fn debug(&self) -> Checked {
        let (mut service, probe) = self.around(Probe::new());
        self.shows_no_secret("a new service", &service)?;
        becomes_ready(&mut service).await?;
        self.shows_no_secret("a ready service", &service)?;
        probe.hold();
        let other = service.clone();
        let mut callers = JoinSet::new();
        callers.spawn(service.call(self.next_call()));
        reaches_inside(&mut callers, &probe).await?;
        self.shows_no_secret("a service that is at work", &other)?;
        self.shows_no_secret("the layer", &self.layer)?;
        probe.release();
        ends(&mut callers, "an answer").await?;
        self.shows_no_secret("a service that has answered", &service)?;
        idle(&probe).await
    }

    fn shows_no_secret(&self, what: &str, value: &impl fmt::Debug) -> Checked {
        let shown = format!("{value:?}\n{value:#?}");
        // Which secret it is must not be shown here either.
        match self.secrets.iter().position(|secret| shown.contains(secret)) {
            None => Ok(()),
            Some(index) => Err(format!("{what} shows secret {} of those given", index + 1)),
        }
    }

    async fn polls_while_held(&self) -> Checked {
        let (service, probe) = self.around(Probe::new());
        probe.hold();
        let mut callers = JoinSet::new();
        let (call, polls) = Counted::new(service.oneshot(self.next_call()));
        callers.spawn(call);
        reaches_inside(&mut callers, &probe).await?;
        settle().await;
        let before = (polls.load(Ordering::Relaxed), probe.counts().future_polls);
        settle().await;
        let outer = polls.load(Ordering::Relaxed) - before.0;
        let inner = probe.counts().future_polls - before.1;
        seldom("the call", outer, "the inner service holds its answer")?;
        seldom("the inner call", inner, "the inner service holds its answer")?;
        probe.release();
        ends(&mut callers, "an answer after the inner service's").await?;
        idle(&probe).await
    }

    async fn polls_while_not_ready(&self) -> Checked {
        let (service, probe) = self.around(Probe::new());
        probe.hold_ready();
        let mut callers = JoinSet::new();
        let (call, polls) = Counted::new(service.oneshot(self.next_call()));
        callers.spawn(call);
        settle().await;
        let before = (polls.load(Ordering::Relaxed), probe.counts().ready_polls);
        settle().await;
        let outer = polls.load(Ordering::Relaxed) - before.0;
        let inner = probe.counts().ready_polls - before.1;
        seldom("the call", outer, "the inner service is not ready")?;
        seldom("readiness", inner, "the inner service is not ready")?;
        probe.open_ready();
        ends(&mut callers, "an answer although the inner service is ready").await?;
        idle(&probe).await
    }

    /// A call goes all the way through, and nothing is left of it.
    async fn works(&self, service: L::Service, probe: &ProbeHandle) -> Checked {
        let before = probe.counts();
        answers(service.oneshot(self.next_call())).await?;
        clean(probe)?;
        if probe.counts().answered == before.answered {
            return Err("the next call was not let through to the inner service".to_owned());
        }
        idle(probe).await
    }
}

#[derive(Clone, Copy)]
enum Panic {
    InCall,
    InFuture,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InCall => "in the inner `call`",
            Self::InFuture => "in the inner future",
        })
    }
}

async fn becomes_ready<S>(service: &mut S) -> Checked
where
    S: Service<ToolCall, Error: fmt::Debug>,
{
    let polled = std::future::poll_fn(|cx| service.poll_ready(cx));
    within("readiness", polled).await?.map_err(|error| format!("`poll_ready` failed: {error:?}"))
}

async fn answers<T, E: fmt::Debug>(call: impl Future<Output = Result<T, E>>) -> Checked {
    match within("an answer", call).await? {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("a call failed that should be let through: {error:?}")),
    }
}

/// Waits until a call is in flight inside the probe. `callers` has the outer call.
async fn reaches_inside<T: 'static, E: fmt::Debug + 'static>(
    callers: &mut JoinSet<Result<T, E>>,
    probe: &ProbeHandle,
) -> Checked {
    let reached = async {
        tokio::select! {
            biased;
            () = probe.reached(|counts| counts.in_flight > 0) => Ok(()),
            Some(ended) = callers.join_next() => Err(not_let_through(&ended)),
        }
    };
    within("a call of the inner service", reached).await?
}

/// Says how a call ended that should have been in flight.
fn not_let_through<T, E: fmt::Debug, P: fmt::Display>(ended: &Result<Result<T, E>, P>) -> String {
    let how = match ended {
        Ok(Ok(_)) => "with success".to_owned(),
        Ok(Err(error)) => format!("with {error:?}"),
        Err(panic) => format!("with a panic: {panic}"),
    };
    format!("a call that should be let through ended before the inner service was done, {how}")
}

/// Waits for the end of the one call that `callers` has. It may have been refused.
async fn ends<T: 'static>(callers: &mut JoinSet<T>, what: &str) -> Checked {
    match within(what, callers.join_next()).await? {
        Some(Err(panic)) => Err(format!("a call panicked: {panic}")),
        Some(Ok(_)) | None => Ok(()),
    }
}

fn clean(probe: &ProbeHandle) -> Checked {
    match probe.violations().first() {
        None => Ok(()),
        Some(violation) => Err(violation.to_string()),
    }
}

async fn idle(probe: &ProbeHandle) -> Checked {
    let quiet = probe.reached(|counts| counts.reserved == 0 && counts.in_flight == 0);
    within("an end of what is reserved and in flight inside", quiet).await.map_err(|how| {
        let counts = probe.counts();
        format!("{how}: {} reserved, {} in flight", counts.reserved, counts.in_flight)
    })
}

fn seldom(what: &str, polls: usize, waiting: &str) -> Checked {
    if polls <= HANDFUL {
        Ok(())
    } else {
        Err(format!("{what} was polled {polls} times in {TURNS} turns while {waiting}"))
    }
}
