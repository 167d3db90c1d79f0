use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tower_tool_core::ExecutionId;
use tower_tool_core::store::{Limits, StoreError};

use crate::codec::{Codec, SealKey};
use crate::doubt::Doubts;
use crate::keys::{Names, is_plain};
use crate::link::Link;
use crate::source::{Target, source};
use crate::store::{RedisStore, Shared};
use crate::time::ServerTime;
use crate::watch::Watch;

/// With what all keys begin.
pub const DEFAULT_PREFIX: &str = "agent";

/// How long an answer may take.
pub const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Sets up a [`RedisStore`].
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_tool_redis::RedisStore;
///
/// let store = RedisStore::cluster(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])
///     .prefix("agents")
///     .response_timeout(Duration::from_secs(1))
///     .seal_key(&[7; 32])
///     .connect()
///     .await?;
/// assert!(store.is_sealed());
/// # Ok(())
/// # }
/// ```
pub struct RedisStoreBuilder {
    target: Target,
    prefix: String,
    timeout: Duration,
    seal: Result<Option<SealKey>, &'static str>,
    limits: Limits,
    wait_replicas: Option<NonZeroU32>,
    /// In PEM, where those of the system are not to be used.
    roots: Option<Vec<u8>>,
}

// By hand: addresses may carry passwords.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target: _, prefix, timeout, seal, limits, wait_replicas, roots: _ } = self;
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", prefix)
            .field("response_timeout", timeout)
            .field("is_sealed", &matches!(seal, Ok(Some(_))))
            .field("limits", limits)
            .field("wait_replicas", wait_replicas)
            .finish_non_exhaustive()
    }
}

impl RedisStoreBuilder {
    fn new(target: Target) -> Self {
        Self {
            target,
            prefix: DEFAULT_PREFIX.to_owned(),
            timeout: DEFAULT_RESPONSE_TIMEOUT,
            seal: Ok(None),
            limits: Limits::default(),
            wait_replicas: None,
            roots: None,
        }
    }

    pub(crate) fn single(url: &str) -> Self {
        Self::new(Target::Single(url.to_owned()))
    }

    pub(crate) fn cluster(urls: Vec<String>) -> Self {
        Self::new(Target::Cluster(urls))
    }

    pub(crate) fn sentinel(urls: Vec<String>, master: &str) -> Self {
        Self::new(Target::Sentinel(urls, master.to_owned()))
    }

    /// With what all keys begin: letters, digits, `.`, `_` and `-`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long an answer may take. A swap whose reply was lost may take as long again, to find out how it ended.
    #[must_use]
    pub const fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Seals records with a key of at least 32 bytes. Every process must have the same; what was written without is an error then.
    #[must_use]
    pub fn seal_key(mut self, key: &[u8]) -> Self {
        self.seal = SealKey::new(key).map(Some).ok_or("a seal key has at least 32 bytes");
        self
    }

    /// How much is kept: [`Limits::result_bytes`] and [`Limits::per_scope`]. What all sessions may have together, and how many
    /// records there may be, is for the server's `maxmemory` to say.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Waits after every swap until so many replicas have it: one more round trip, in which the other calls of this store wait too.
    /// Fewer within the response timeout is an error, though it was made.
    #[must_use]
    pub const fn wait_replicas(mut self, replicas: NonZeroU32) -> Self {
        self.wait_replicas = Some(replicas);
        self
    }

    /// Whose certificates are taken, in PEM, instead of those that the system trusts.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Connects, asks the server for its time and looks at its settings.
    ///
    /// # Errors
    ///
    /// If something that was set cannot be, or nobody answers.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let Self { target, prefix, timeout, seal, limits, wait_replicas, roots } = self;
        if prefix.is_empty() || !prefix.bytes().all(is_plain) {
            return Err(StoreError::unavailable("a prefix has letters, digits, `.`, `_` and `-`, and is not empty"));
        }
        if timeout < Duration::from_millis(10) {
            return Err(StoreError::unavailable("within less than 10 ms no server answers"));
        }
        let seal = seal.map_err(StoreError::unavailable)?;
        #[cfg(feature = "tls")]
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else was quicker, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let source = source(target, timeout, roots).map_err(StoreError::unavailable)?;
        let link = Arc::new(Link::new(source, timeout));
        let nonce = ExecutionId::random().map_err(StoreError::unavailable)?.to_string();
        // Boxed: the driver's futures are deep, and whoever awaits this should not have to know.
        Box::pin(RedisStore::start(Shared {
            watch: Watch::new(Arc::clone(&link)),
            link,
            names: Names::new(prefix),
            codec: Codec { seal },
            limits,
            wait_replicas,
            time: ServerTime::new(),
            doubts: Doubts::default(),
            nonce,
            count: AtomicU64::new(0),
        }))
        .await
    }
}
