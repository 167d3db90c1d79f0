//! Where servers are, and how they are spoken to.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, TlsMode};
use tokio::sync::Mutex;

use crate::connector::{Cluster, Source};

/// How to reach the servers.
pub(crate) enum Target {
    Single(String),
    Cluster(Vec<String>),
    Sentinel(Vec<String>, String),
}

pub(crate) fn source(target: Target, timeout: Duration, roots: Option<Vec<u8>>) -> Result<Source, RedisError> {
    let roots = Roots(roots);
    match target {
        Target::Single(url) => Ok(Source::Single(Box::new(roots.client(url)?))),
        Target::Cluster(urls) => {
            let builder = || ClusterClient::builder(urls.clone()).connection_timeout(timeout).response_timeout(timeout);
            Ok(Source::Cluster(Box::new(Cluster {
                client: roots.cluster(builder()).build()?,
                // Where announcements stay in their slot, only the third version of the protocol brings them.
                ears: roots.cluster(builder().use_protocol(ProtocolVersion::RESP3)).build()?,
                seeds: urls.iter().map(|url| roots.client(url.clone())).collect::<Result<_, _>>()?,
            })))
        }
        Target::Sentinel(urls, master) => {
            let infos: Vec<ConnectionInfo> =
                urls.into_iter().map(redis::IntoConnectionInfo::into_connection_info).collect::<Result<_, _>>()?;
            let addresses: Vec<_> = infos.iter().map(|info| info.addr().clone()).collect();
            // Sentinels name a host and a port: whether that is spoken to in secret is for these addresses to say.
            let is_secret = addresses.iter().any(|address| matches!(address, ConnectionAddr::TcpTls { .. }));
            let mut builder = SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?;
            if is_secret {
                builder = builder
                    .set_client_to_redis_tls_mode(TlsMode::Secure)
                    .set_client_to_sentinel_tls_mode(TlsMode::Secure);
            }
            if let Some(redis) = infos.first().map(ConnectionInfo::redis_settings) {
                builder = builder.set_client_to_redis_db(redis.db());
                if let Some(user) = redis.username() {
                    builder = builder.set_client_to_redis_username(user);
                }
                if let Some(password) = redis.password() {
                    builder = builder.set_client_to_redis_password(password);
                }
            }
            Ok(Source::Sentinel(Box::new(Mutex::new(roots.sentinel(builder).build()?))))
        }
    }
}

/// Whose certificates are taken, if not those that the system trusts.
struct Roots(Option<Vec<u8>>);

#[cfg(feature = "tls")]
impl Roots {
    fn certificates(&self) -> Option<redis::TlsCertificates> {
        self.0.clone().map(|roots| redis::TlsCertificates { client_tls: None, root_cert: Some(roots) })
    }

    fn client(&self, url: String) -> Result<Client, RedisError> {
        match self.certificates() {
            Some(certificates) => Client::build_with_tls(url, certificates),
            None => Client::open(url),
        }
    }

    fn cluster(&self, builder: redis::cluster::ClusterClientBuilder) -> redis::cluster::ClusterClientBuilder {
        match self.certificates() {
            Some(certificates) => builder.certs(certificates),
            None => builder,
        }
    }

    fn sentinel(&self, builder: SentinelClientBuilder) -> SentinelClientBuilder {
        match self.certificates() {
            Some(certificates) => builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates),
            None => builder,
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Roots {
    fn client(&self, url: String) -> Result<Client, RedisError> {
        // There is no way to set any.
        debug_assert!(self.0.is_none());
        Client::open(url)
    }

    fn cluster(&self, builder: redis::cluster::ClusterClientBuilder) -> redis::cluster::ClusterClientBuilder {
        debug_assert!(self.0.is_none());
        builder
    }

    fn sentinel(&self, builder: SentinelClientBuilder) -> SentinelClientBuilder {
        debug_assert!(self.0.is_none());
        builder
    }
}
