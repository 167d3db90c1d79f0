//! Who calls: from a bearer token to an identity.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use tower_tool::store::Io;
use tower_tool::{Category, Principal, ToolError};

use crate::app::App;
use crate::respond::Refusal;

/// Who a credential stands for, and what it may use here.
///
/// ```
/// use tower_tool::Principal;
/// use tower_tool_axum::Identity;
///
/// let identity = Identity::new(Principal::new("acme", "user_42")).with_workers(["order"]);
/// assert!(identity.may_use("order"));
/// assert!(!identity.may_use("refund"));
/// assert!(!identity.is_approver());
/// ```
#[derive(Clone, Debug)]
pub struct Identity {
    principal: Principal,
    workers: Workers,
    approver: bool,
}

#[derive(Clone, Debug)]
enum Workers {
    Named(BTreeSet<Arc<str>>),
    All,
}

impl Identity {
    /// This principal, with no worker, who decides nobody else's cards.
    pub const fn new(principal: Principal) -> Self {
        Self { principal, workers: Workers::Named(BTreeSet::new()), approver: false }
    }

    /// Names the workers whose tools it may use.
    #[must_use]
    pub fn with_workers<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.workers = Workers::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// It may use the tools of every worker.
    #[must_use]
    pub fn with_all_workers(mut self) -> Self {
        self.workers = Workers::All;
        self
    }

    /// It may see all cards of its tenant and decide those of others.
    #[must_use]
    pub fn as_approver(mut self) -> Self {
        self.approver = true;
        self
    }

    /// Who it stands for.
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether it may use the tools of this worker.
    pub fn may_use(&self, worker: &str) -> bool {
        match &self.workers {
            Workers::Named(names) => names.contains(worker),
            Workers::All => true,
        }
    }

    /// Whether it may decide the cards of others. Nobody in particular never may.
    pub fn is_approver(&self) -> bool {
        self.approver && !self.principal.is_anonymous()
    }
}

/// Knows who a bearer token stands for.
///
/// Implemented for closures `Fn(&str) -> Option<Identity>` and for [`StaticTokens`]. One that has to ask elsewhere answers with
/// [`Io::later`]:
///
/// ```
/// use tower_tool::store::Io;
/// use tower_tool::{Principal, ToolError};
/// use tower_tool_axum::{Authenticator, Identity};
///
/// # #[derive(Debug)] struct Sessions;
/// # impl Sessions { async fn user_of(&self, _: &str) -> Result<Option<String>, ToolError> { Ok(None) } }
/// impl Authenticator for Sessions {
///     fn authenticate<'a>(&'a self, token: &'a str) -> Io<'a, Result<Option<Identity>, ToolError>> {
///         Io::later(async move {
///             let user = self.user_of(token).await?;
///             Ok(user.map(|user| Identity::new(Principal::new("acme", user))))
///         })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell who a token stands for",
    note = "give `StaticTokens`, a closure `Fn(&str) -> Option<Identity>`, or implement `Authenticator`"
)]
pub trait Authenticator: Send + Sync + 'static {
    /// Who the token stands for, `None` if for nobody.
    ///
    /// The token is not empty and has neither blanks nor control characters. An error refuses the request: use
    /// [`Unavailable`](tower_tool::ToolErrorKind::Unavailable) where it could not be found out.
    fn authenticate<'a>(&'a self, token: &'a str) -> Io<'a, Result<Option<Identity>, ToolError>>;
}

impl<F> Authenticator for F
where
    F: Fn(&str) -> Option<Identity> + Send + Sync + 'static,
{
    fn authenticate<'a>(&'a self, token: &'a str) -> Io<'a, Result<Option<Identity>, ToolError>> {
        Io::now(Ok(self(token)))
    }
}

/// A token that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    why: &'static str,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

impl std::error::Error for TokenError {}

/// A fixed list of tokens.
///
/// It keeps the SHA-256 digests of the tokens, and compares a presented one with all of them in the same time whether it matches
/// or not. Take tokens that nobody can guess, such as 32 random bytes in hexadecimal.
///
/// ```
/// use tower_tool::Principal;
/// use tower_tool_axum::{Identity, StaticTokens};
///
/// let tokens = StaticTokens::new()
///     .with("5d1f6c0e", Identity::new(Principal::new("acme", "user_42")))?
///     .with("a77c9b41", Identity::new(Principal::new("acme", "lead")).as_approver())?;
/// assert!(!format!("{tokens:?}").contains("5d1f6c0e"));
/// # Ok::<(), tower_tool_axum::TokenError>(())
/// ```
#[derive(Clone, Default)]
pub struct StaticTokens {
    known: Vec<([u8; 32], Identity)>,
}

impl StaticTokens {
    /// An empty list, which lets nobody in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token.
    ///
    /// # Errors
    ///
    /// If the token is empty, has other characters than visible ASCII, or is in the list already.
    pub fn with(mut self, token: &str, identity: Identity) -> Result<Self, TokenError> {
        if !is_token(token) {
            return Err(TokenError { why: "a token must be visible ASCII characters, at least one" });
        }
        if self.find(token).is_some() {
            return Err(TokenError { why: "two identities cannot have the same token" });
        }
        self.known.push((digest(token), identity));
        Ok(self)
    }

    fn find(&self, token: &str) -> Option<&Identity> {
        let presented = digest(token);
        let mut found = 0_u64;
        for (position, (digest, _)) in (1..).zip(&self.known) {
            let same: Choice = presented.ct_eq(digest);
            found.conditional_assign(&position, same);
        }
        let index = usize::try_from(found).ok()?.checked_sub(1)?;
        self.known.get(index).map(|(_, identity)| identity)
    }
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { known } = self;
        f.debug_list().entries(known.iter().map(|(_, identity)| identity)).finish()
    }
}

impl Authenticator for StaticTokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> Io<'a, Result<Option<Identity>, ToolError>> {
        Io::now(Ok(self.find(token).cloned()))
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whoever presented a token that the authenticator knows.
#[derive(Debug)]
pub(crate) struct Caller(pub(crate) Identity);

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let Some(token) = bearer(&parts.headers) else {
            return Err(unauthenticated("Bearer"));
        };
        match app.authenticator.authenticate(token).await? {
            Some(identity) => Ok(Self(identity)),
            None => Err(unauthenticated(r#"Bearer error="invalid_token""#)),
        }
    }
}

fn unauthenticated(challenge: &'static str) -> Refusal {
    Refusal::new(
        StatusCode::UNAUTHORIZED,
        "UNAUTHENTICATED",
        Category::Permission,
        "Present a valid token in the `Authorization` header. Nothing was done.",
    )
    .with_header(WWW_AUTHENTICATE, challenge)
}

/// The token of the one `Authorization` header. RFC 6750 §2.1; the scheme is case-insensitive, RFC 9110 §11.1.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_token_is_taken_from_exactly_one_bearer_header() {
        for (values, expected) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&[], None),
            (&["abc"], None),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["Bearer a b"], None),
            (&["Basic abc"], None),
            (&["Bearer abc", "Bearer abc"], None),
        ] {
            assert_eq!(bearer(&headers(values)), expected, "{values:?}");
        }
    }

    #[test]
    fn a_token_finds_its_own_identity_and_no_other() {
        let identity = |actor| Identity::new(Principal::new("acme", actor));
        let tokens = StaticTokens::new().with("one", identity("alice")).unwrap().with("two", identity("bob")).unwrap();
        let actor = |token| Some(tokens.find(token)?.principal().actor().to_owned());
        assert_eq!(actor("one").as_deref(), Some("alice"));
        assert_eq!(actor("two").as_deref(), Some("bob"));
        assert_eq!(actor("three"), None);
        assert_eq!(actor(""), None);
        assert!(tokens.clone().with("two", identity("carol")).is_err());
        for bad in ["", " ", "a b", "ä", "a\n"] {
            assert!(tokens.clone().with(bad, identity("carol")).is_err());
        }
    }

    #[test]
    fn nobody_in_particular_is_no_approver() {
        let nobody = Identity::new(Principal::anonymous("acme")).as_approver();
        assert!(!nobody.is_approver());
    }
}
