use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tower_tool_core::store::{
    BucketKey, Io, LedgerStore, Limits, Page, Quota, QuotaStore, Record, RecordKey, Revision, StoreError, Swap, Topic,
};
use tower_tool_core::{ApprovalId, ExecutionId, Timestamp};

use crate::builder::RedisStoreBuilder;
use crate::check::Warning;
use crate::codec::{Codec, Reply};
use crate::doubt::Doubts;
use crate::keys::Names;
use crate::link::{Link, Node};
use crate::time::ServerTime;
use crate::watch::Watch;

/// How long somebody waits at most before looking again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What all handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Arc<Link>,
    pub(crate) names: Names,
    pub(crate) codec: Codec,
    pub(crate) limits: Limits,
    pub(crate) wait_replicas: Option<NonZeroU32>,
    pub(crate) time: ServerTime,
    pub(crate) doubts: Doubts,
    /// Tells the writes of this store from all others.
    pub(crate) nonce: String,
    pub(crate) count: AtomicU64,
    pub(crate) watch: Watch,
}

impl Shared {
    /// A number that no other swap of this store has.
    pub(crate) fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Until when an answer must be there.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.link.timeout
    }

    /// Takes in the time that a reply tells.
    pub(crate) fn learn(&self, reply: &Reply, sent: Instant) {
        if reply.certain {
            self.time.learn(reply.now, sent);
        }
    }

    /// Asks for the time, and gives whether the server tells it.
    pub(crate) async fn tells_time(&self) -> Result<bool, StoreError> {
        // Whether there is a server at all.
        let _: redis::Value = self.link.command(&redis::cmd("PING"), Node::MasterOf(""), self.until()).await?;
        let told = self.link.command(&redis::cmd("TIME"), Node::MasterOf(""), self.until()).await;
        let Ok((seconds, micros)) = told.map(|time: (u64, u64)| time) else { return Ok(false) };
        self.time.begin(seconds.saturating_mul(1_000).saturating_add(micros / 1_000));
        Ok(true)
    }

    async fn at(&self, topic: Topic<'_>, name: &str) -> Result<u64, StoreError> {
        let command = match topic {
            Topic::Record(_) => redis::cmd("HGET").arg(name).arg("r").clone(),
            _ => redis::cmd("GET").arg(name).clone(),
        };
        let at: Option<u64> = self.link.command(&command, Node::Keys, self.until()).await?;
        Ok(at.unwrap_or_default())
    }

    async fn changed(&self, topic: Topic<'_>, since: u64) -> Result<u64, StoreError> {
        let (name, channel) = match topic {
            Topic::Record(key) => {
                let names = self.names.record(key);
                (names.record, names.channel)
            }
            Topic::Cards(tenant) => {
                let names = self.names.cards(tenant);
                (names.count().to_owned(), names.channel)
            }
            _ => return Err(StoreError::unavailable("nothing that this store knows can be waited for")),
        };
        let at = self.at(topic, &name).await?;
        if at != since {
            return Ok(at);
        }
        let waiter = self.watch.wait_for(&channel, LOOK_AGAIN).await;
        let mut is_heard = true;
        loop {
            // Registered before the look, so that a change in between wakes it.
            let mut wakes = std::pin::pin!(waiter.wakes.notified());
            wakes.as_mut().enable();
            let at = self.at(topic, &name).await?;
            if at != since {
                if !is_heard {
                    self.watch.doubt();
                }
                return Ok(at);
            }
            // Late or not, the next look tells.
            is_heard = timeout_at(Instant::now() + LOOK_AGAIN, wakes).await.is_ok();
        }
    }
}

/// Records and rate limits in Redis or Valkey. See the [crate docs](crate).
///
/// Clones share one connection.
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
    warnings: Arc<[Warning]>,
}

// By hand: names and addresses are other people's business.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shared, warnings } = self;
        let Shared { link, limits, wait_replicas, .. } = &**shared;
        f.debug_struct("RedisStore")
            .field("link", link)
            .field("limits", limits)
            .field("wait_replicas", wait_replicas)
            .field("is_sealed", &self.is_sealed())
            .field("warnings", warnings)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects to one server: `redis://`, `rediss://` (with the feature `tls`) or `unix:`.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_tool_redis::RedisStore;
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
    /// for warning in store.warnings() {
    ///     eprintln!("{warning}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the address cannot be read, or nobody answers there.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// A store on one server, to be set up.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::single(url)
    }

    /// A store on a cluster, to be set up. Some of its nodes are enough.
    pub fn cluster<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> RedisStoreBuilder {
        RedisStoreBuilder::cluster(urls.into_iter().map(Into::into).collect())
    }

    /// A store on whichever server is the master of this name, to be set up. The addresses are those of sentinels; user,
    /// password and database in the first of them are the server's.
    pub fn sentinel<S: Into<String>>(urls: impl IntoIterator<Item = S>, master: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::sentinel(urls.into_iter().map(Into::into).collect(), master)
    }

    pub(crate) async fn start(shared: Shared) -> Result<Self, StoreError> {
        let warnings = shared.warnings().await?.into();
        Ok(Self { shared: Arc::new(shared), warnings })
    }

    /// What about the server keeps the promise from being whole, as it was when the store was opened.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether records carry a seal, and one without it is an error. Without, tools of high impact (R3, R4) are refused.
    pub fn is_sealed(&self) -> bool {
        self.shared.codec.seal.is_some()
    }
}

impl LedgerStore for RedisStore {
    fn now(&self) -> Timestamp {
        self.shared.time.now()
    }

    fn is_tamper_evident(&self) -> bool {
        self.is_sealed()
    }

    fn get<'a>(&'a self, key: &'a RecordKey) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        Io::later(self.shared.get(key))
    }

    fn swap<'a>(
        &'a self,
        key: &'a RecordKey,
        expected: Option<Revision>,
        next: Option<Arc<Record>>,
    ) -> Io<'a, Result<Swap, StoreError>> {
        Io::later(self.shared.swap(key, expected, next))
    }

    fn changed<'a>(&'a self, topic: Topic<'a>, since: u64) -> Io<'a, Result<u64, StoreError>> {
        Io::later(self.shared.changed(topic, since))
    }

    fn by_approval<'a>(&'a self, tenant: &'a str, id: ApprovalId) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        Io::later(self.shared.by_approval(tenant, id))
    }

    fn by_execution<'a>(
        &'a self,
        tenant: &'a str,
        scope: &'a str,
        id: ExecutionId,
    ) -> Io<'a, Result<Option<Arc<Record>>, StoreError>> {
        Io::later(self.shared.by_execution(tenant, scope, id))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a str,
        after: Option<ApprovalId>,
        limit: usize,
    ) -> Io<'a, Result<Vec<Arc<Record>>, StoreError>> {
        Io::later(self.shared.pending(tenant, after, limit))
    }

    fn in_scope<'a>(
        &'a self,
        tenant: &'a str,
        actor: &'a str,
        scope: &'a str,
    ) -> Io<'a, Result<Vec<RecordKey>, StoreError>> {
        Io::later(self.shared.in_scope(tenant, actor, scope))
    }

    fn scan<'a>(&'a self, after: Option<&'a str>, limit: usize) -> Io<'a, Result<Page, StoreError>> {
        Io::later(self.shared.scan(after, limit))
    }
}

impl QuotaStore for RedisStore {
    fn take<'a>(&'a self, bucket: BucketKey<'a>, quota: Quota) -> Io<'a, Result<Option<Duration>, StoreError>> {
        Io::later(self.shared.take(bucket, quota))
    }
}
