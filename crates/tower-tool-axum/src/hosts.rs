//! Which names a server answers to, and which pages may call it.
//!
//! A page of another site can make a browser resolve its own name to `127.0.0.1` and so reach a local server (DNS rebinding). The
//! browser then still says whom it believes to speak to, in `Host`, and which page speaks, in `Origin`. [`HostCheckLayer`] looks at both
//! before anything else does:
//!
//! 1. `Host`, or the authority of the request's target, must be one of the allowed names: unless told otherwise `localhost`,
//!    `127.0.0.1` and `[::1]`, with any port. None, two, or two that differ are none. Otherwise `421`.
//! 2. `Origin`, if there is one, must name the same host and port, or be allowed by name. Otherwise `403`.
//!
//! It decides at once: readiness is that of the inner service, and a refusal is a response. [`ToolRouter`](crate::ToolRouter)
//! has the layer around its own routes; put [the same](crate::ToolRouter::host_check) around yours.
//!
//! It does not authenticate anybody, and without a browser every header can be forged. Behind a proxy allow the name that
//! the proxy passes on.
//!
//! ```
//! use axum::Router;
//! use axum::routing::get;
//! use tower_tool_axum::hosts::HostCheckLayer;
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "a page" }))
//!     .layer(HostCheckLayer::new().allow_hosts(["desk.example", "localhost:3000"])?);
//! # Ok::<(), tower_tool_axum::hosts::HostError>(())
//! ```

use std::fmt;
use std::net::Ipv6Addr;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Request, StatusCode, Uri};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use tower_tool::Category;

use crate::respond::Refusal;

/// The names that are allowed unless others are.
pub const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// A host or an origin that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text.escape_debug(), self.expected)
    }
}

impl std::error::Error for HostError {}

/// A name and perhaps a port, in one spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    name: String,
    port: Option<u16>,
}

impl FromStr for Host {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let authority = Authority::from_str(text).map_err(|_| ())?;
        let port = authority.port_u16();
        let rest = text.strip_prefix(authority.host()).ok_or(())?;
        let is_whole = match port {
            // `:`, `:x` and `:99999` are no port; user information is no part of a host.
            Some(_) => rest.starts_with(':'),
            None => rest.is_empty(),
        };
        if !is_whole {
            return Err(());
        }
        let name = match authority.host().strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => format!("[{}]", Ipv6Addr::from_str(address).map_err(|_| ())?),
            // A wildcard is no host either: nothing would ever match it.
            None => Some(authority.host().to_ascii_lowercase()).filter(|name| is_name(name)).ok_or(())?,
        };
        Ok(Self { name, port })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

/// A page's origin: RFC 6454 §6.2.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    scheme_port: u16,
    host: Host,
}

impl FromStr for Origin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (scheme, host) = text.split_once("://").ok_or(())?;
        let scheme_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(()),
        };
        Ok(Self { scheme_port, host: host.parse()? })
    }
}

impl Origin {
    /// Whether a page of this origin was served under this host. What stands before the server may end TLS, so the scheme
    /// only says which port is meant where none is named.
    fn is_of(&self, host: &Host) -> bool {
        let port = |host: &Host| host.port.unwrap_or(self.scheme_port);
        self.host.name == host.name && port(&self.host) == port(host)
    }
}

#[derive(Debug)]
struct Rules {
    hosts: Vec<Host>,
    origins: Vec<Origin>,
}

impl Rules {
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = presented_host(uri, headers)
            .filter(|host| {
                self.hosts
                    .iter()
                    .any(|allowed| allowed.name == host.name && (allowed.port.is_none() || allowed.port == host.port))
            })
            .ok_or_else(|| {
                Refusal::new(
                    StatusCode::MISDIRECTED_REQUEST,
                    "HOST_NOT_ALLOWED",
                    Category::Permission,
                    "This server does not answer to that host. Nothing was done.",
                )
            })?;
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let origin: Option<Origin> = origin.to_str().ok().and_then(|text| text.parse().ok());
        let is_allowed = origins.next().is_none()
            && origin.is_some_and(|origin| origin.is_of(&host) || self.origins.contains(&origin));
        if is_allowed {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "ORIGIN_NOT_ALLOWED",
            Category::Permission,
            "Pages of that origin may not call this server. Nothing was done.",
        ))
    }
}

/// Whom the client believes to speak to, if that is one thing.
fn presented_host(uri: &Uri, headers: &HeaderMap) -> Option<Host> {
    let mut values = headers.get_all(HOST).iter();
    let header = match (values.next(), values.next()) {
        (None, _) => None,
        (Some(value), None) => Some(value.to_str().ok()?.parse().ok()?),
        (Some(_), Some(_)) => return None,
    };
    let target = match uri.authority() {
        None => None,
        Some(authority) => Some(authority.as_str().parse().ok()?),
    };
    match (header, target) {
        (Some(header), Some(target)) => (header == target).then_some(header),
        (one, other) => one.or(other),
    }
}

/// Checks `Host` and `Origin` before anything else. See the [module docs](self).
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it stands around a service"]
pub struct HostCheckLayer {
    rules: Arc<Rules>,
}

impl Default for HostCheckLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl HostCheckLayer {
    /// Allows the [loopback names](LOOPBACK), with any port, and pages that were served under them.
    pub fn new() -> Self {
        let hosts = LOOPBACK.iter().filter_map(|name| name.parse().ok()).collect();
        Self { rules: Arc::new(Rules { hosts, origins: Vec::new() }) }
    }

    /// Allows these hosts, and no others: `name` with any port, or `name:port`. Loopback names too must then be named.
    ///
    /// # Errors
    ///
    /// If one of them is not a host.
    pub fn allow_hosts<N: AsRef<str>>(self, hosts: impl IntoIterator<Item = N>) -> Result<Self, HostError> {
        let hosts = parse(hosts, "a host, such as `desk.example` or `[::1]:3000`")?;
        let origins = self.rules.origins.clone();
        Ok(Self { rules: Arc::new(Rules { hosts, origins }) })
    }

    /// Allows pages of these origins too, such as `https://desk.example`. What they may read is for CORS headers to say,
    /// which this crate does not set.
    ///
    /// # Errors
    ///
    /// If one of them is not an origin.
    pub fn allow_origins<N: AsRef<str>>(self, origins: impl IntoIterator<Item = N>) -> Result<Self, HostError> {
        let origins = parse(origins, "an origin, such as `https://desk.example`")?;
        let hosts = self.rules.hosts.clone();
        Ok(Self { rules: Arc::new(Rules { hosts, origins }) })
    }
}

fn parse<T: FromStr, N: AsRef<str>>(
    texts: impl IntoIterator<Item = N>,
    expected: &'static str,
) -> Result<Vec<T>, HostError> {
    texts
        .into_iter()
        .map(|text| {
            let text = text.as_ref();
            text.parse().map_err(|_| HostError { text: text.to_owned(), expected })
        })
        .collect()
}

impl<S> Layer<S> for HostCheckLayer {
    type Service = HostCheck<S>;

    fn layer(&self, inner: S) -> HostCheck<S> {
        HostCheck { inner, rules: Arc::clone(&self.rules) }
    }
}

/// Checks `Host` and `Origin` before anything else. See the [module docs](self).
#[derive(Clone, Debug)]
pub struct HostCheck<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S> HostCheck<S> {
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
}

impl<S, B> Service<Request<B>> for HostCheck<S>
where
    S: Service<Request<B>, Response = Response>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let state = match self.rules.check(request.uri(), request.headers()) {
            Ok(()) => State::Pass { inner: self.inner.call(request) },
            Err(refusal) => State::Refuse { response: Some(refusal.into_response()) },
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The response future of [`HostCheck`].
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Pass { #[pin] inner: F },
        Refuse { response: Option<Response> },
    }
}

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response, E>>,
{
    type Output = Result<Response, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Pass { inner } => inner.poll(cx),
            StateProj::Refuse { response } => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
