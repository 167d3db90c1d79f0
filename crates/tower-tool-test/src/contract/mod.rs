//! The rules of tower that a layer around tool calls must keep, as one suite.
//!
//! A layer that breaks one of them works in its own tests and fails in a stack: a permit is lost for every caller that goes
//! away, a limit inside it counts wrong, a panic of one call ends all others. [`LayerContract`] puts the layer around a
//! [`Probe`] and tries each rule. [`Property`] lists them.

mod checks;
mod observe;

use std::fmt;
use std::panic::Location;

use tower_layer::Layer;
use tower_service::Service;
use tower_tool_core::ToolCall;

use crate::Probe;

/// A rule that every layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Property {
    /// The response future has a name: it is neither a bare box nor an anonymous future.
    NamedFuture,
    /// The inner instance that is called is the one that reported ready, also after the service was cloned, also for
    /// later calls; and the layer waits for readiness without losing the wake-up.
    Readiness,
    /// A clone of a ready service is not ready itself.
    CloneResetsReservation,
    /// A ready service that is dropped, and a response future that is dropped before it was polled or while it waits for
    /// readiness, leave nothing reserved.
    DropBeforeCall,
    /// A response future that is dropped half way drops the inner one, or lets it go on if the layer detaches; and leaves
    /// nothing behind.
    DropDuringCall,
    /// A panic of the inner service, in its call or in its future, does not end more than the call.
    PanicInside,
    /// An inner service that fails to become ready is reported, by `poll_ready` or by the call, and left alone.
    ReadinessFailure,
    /// `Debug` of layer and service shows no secret.
    NoSecretsInDebug,
    /// A call that waits is polled when there is something to do, and only then.
    WakeUps,
}

impl Property {
    /// Every property, in the order in which they are checked.
    pub const ALL: &'static [Self] = &[
        Self::NamedFuture,
        Self::Readiness,
        Self::CloneResetsReservation,
        Self::DropBeforeCall,
        Self::DropDuringCall,
        Self::PanicInside,
        Self::ReadinessFailure,
        Self::NoSecretsInDebug,
        Self::WakeUps,
    ];

    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NamedFuture => "named future",
            Self::Readiness => "readiness of the instance that is called",
            Self::CloneResetsReservation => "clones reset reservations",
            Self::DropBeforeCall => "drop before the call",
            Self::DropDuringCall => "drop during the call",
            Self::PanicInside => "panic inside",
            Self::ReadinessFailure => "readiness failure",
            Self::NoSecretsInDebug => "no secrets in debug",
            Self::WakeUps => "wake-ups",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A rule that a layer breaks, and how that showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    property: Property,
    how: String,
}

impl Broken {
    /// The rule.
    pub fn property(&self) -> Property {
        self.property
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the layer breaks `{}`: {}", self.property, self.how)
    }
}

impl std::error::Error for Broken {}

/// The suite for one layer. `Send`, `Sync`, `Clone` and `'static` are demanded by the bounds of [`check`](Self::check).
///
/// `call` gives calls that the layer lets through to its inner service. It is asked for fewer than a hundred. If the layer
/// remembers calls, give another one each time; if it counts them, give it room for a hundred; if it limits how many run at
/// once, let it be to fewer than eight, so that a permit that is lost is missed.
///
/// Run it under paused time, so that a wake-up that is lost is noticed at once. Layers that need real time, because they talk
/// to a socket or a thread of their own, are checked in real time; what should happen and does not is then waited for
/// for a minute.
///
/// ```
/// use serde_json::json;
/// use tower_tool_core::Risk;
/// use tower_tool_test::{LayerContract, MockTool, call};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let tool = MockTool::new("get_status", Risk::PublicRead);
/// let layer = tower_layer::Identity::new(); // the layer under test
/// LayerContract::new(layer, || tool.prepared(json!({}), call::context()))
///     .secret("hunter2")
///     .check()
///     .await;
/// # }
/// ```
#[must_use = "a contract is checked by `check`"]
pub struct LayerContract<L, C> {
    layer: L,
    call: C,
    detaches: bool,
    answers_failures: bool,
    secrets: Vec<String>,
}

impl<L, C> LayerContract<L, C> {
    /// The contract of `layer`, tried with the calls that `call` gives.
    pub fn new(layer: L, call: C) -> Self {
        Self { layer, call, detaches: false, answers_failures: false, secrets: Vec::new() }
    }

    /// What has reached the inner service goes on when the caller goes away, as executions with effects do.
    pub fn detaches(mut self) -> Self {
        self.detaches = true;
        self
    }

    /// Failures are answers: the layer turns every error of the inner service into a response, as an envelope does.
    pub fn answers_failures(mut self) -> Self {
        self.answers_failures = true;
        self
    }

    /// `Debug` must not show this.
    ///
    /// # Panics
    ///
    /// If the secret is empty, since every text shows that.
    #[track_caller]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        let secret = secret.into();
        assert!(!secret.is_empty(), "an empty secret is shown by every text");
        self.secrets.push(secret);
        self
    }
}

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
    /// Checks every [`Property`].
    ///
    /// # Panics
    ///
    /// When awaited: if the layer breaks one, with its name; or outside a runtime with timers.
    #[track_caller]
    pub fn check(&self) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            if let Err(broken) = self.verify().await {
                panic!("{broken} (checked at {at})");
            }
        }
    }

    /// Checks every [`Property`], and gives the first that the layer breaks.
    ///
    /// # Errors
    ///
    /// The property that is broken.
    pub async fn verify(&self) -> Result<(), Broken> {
        for &property in Property::ALL {
            self.verify_one(property).await?;
        }
        Ok(())
    }

    /// Checks one [`Property`].
    ///
    /// # Errors
    ///
    /// If the layer breaks it.
    pub async fn verify_one(&self, property: Property) -> Result<(), Broken> {
        // A panic that gets out of the layer where none was asked for is a breach too.
        let checked = observe::caught(self.try_property(property)).await;
        let broken = |how| Broken { property, how };
        match checked {
            Ok(held) => held.map_err(broken),
            Err(panic) => Err(broken(format!("the layer panicked: {panic}"))),
        }
    }
}

impl<L, C> fmt::Debug for LayerContract<L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer: _, call: _, detaches, answers_failures, secrets } = self;
        f.debug_struct("LayerContract")
            .field("layer", &std::any::type_name::<L>())
            .field("call", &format_args!("<fn>"))
            .field("detaches", detaches)
            .field("answers_failures", answers_failures)
            .field("secrets", &secrets.len())
            .finish()
    }
}

#[cfg(test)]
mod tests;
