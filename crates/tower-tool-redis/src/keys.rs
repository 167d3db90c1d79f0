//! Names in the server.
//!
//! Every part that comes from outside is percent-encoded but for letters, digits, `.`, `_` and `-`, so that no two records share a
//! name whatever they are called, and only the braces that are written here make a hash tag.

use std::fmt::Write as _;

use tower_tool_core::Digest;
use tower_tool_core::store::RecordKey;

/// Names everything that belongs to one record.
#[derive(Debug, Clone)]
pub(crate) struct RecordNames {
    /// The record.
    pub(crate) record: String,
    /// All keys that a swap may touch in the slot of the session: the record first, the bodies fifth.
    pub(crate) slot: [String; 6],
    /// The record within the actor's session: `tool:digest`.
    pub(crate) member: String,
    /// The actor.
    pub(crate) actor: String,
    /// The record within its tenant: `scope:actor:tool:digest`.
    pub(crate) locator: String,
    /// Where changes are announced.
    pub(crate) channel: String,
    /// Written for the sake of writing something.
    pub(crate) fence: String,
}

/// Names what belongs to a tenant's cards.
#[derive(Debug, Clone)]
pub(crate) struct CardNames {
    /// What each belongs to, those that are pending, when they may be forgotten, how often they changed.
    pub(crate) slot: [String; 4],
    /// Where changes are announced.
    pub(crate) channel: String,
}

impl CardNames {
    pub(crate) fn of(&self) -> &str {
        let [of, ..] = &self.slot;
        of
    }

    pub(crate) fn pending(&self) -> &str {
        let [_, pending, ..] = &self.slot;
        pending
    }

    pub(crate) fn count(&self) -> &str {
        let [.., count] = &self.slot;
        count
    }
}

impl RecordNames {
    pub(crate) fn bodies(&self) -> &str {
        let [.., bodies, _] = &self.slot;
        bodies
    }
}

/// Makes the names under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    pub(crate) fn record(&self, key: &RecordKey) -> RecordNames {
        let Self { prefix } = self;
        let tag = tag(&key.tenant, &key.scope);
        let (actor, hex) = (encoded(&key.actor), hex(key.digest.as_bytes()));
        let member = format!("{}:{hex}", encoded(&key.tool));
        let record = format!("{prefix}:idem:{tag}:{member}");
        RecordNames {
            slot: [
                record.clone(),
                format!("{prefix}:exec:{tag}"),
                format!("{prefix}:ends:{tag}"),
                format!("{prefix}:actor:{tag}:{actor}"),
                format!("{prefix}:body:{tag}:{actor}"),
                format!("{prefix}:order:{tag}:{actor}"),
            ],
            channel: format!("{prefix}:changed:{tag}:{member}"),
            fence: format!("{prefix}:fence:{tag}"),
            locator: format!("{}:{actor}:{member}", encoded(&key.scope)),
            record,
            member,
            actor,
        }
    }

    pub(crate) fn cards(&self, tenant: &str) -> CardNames {
        let Self { prefix } = self;
        // An empty tag would be none. A `%` alone encodes nothing else.
        let tenant = if tenant.is_empty() { "%".to_owned() } else { encoded(tenant) };
        let name = |what: &str| format!("{prefix}:{what}:{{{tenant}}}");
        CardNames {
            slot: [name("cards"), name("pending"), name("cards-end"), name("cards-at")],
            channel: name("changed"),
        }
    }

    /// The executions of a session.
    pub(crate) fn executions(&self, tenant: &str, scope: &str) -> String {
        format!("{}:exec:{}", self.prefix, tag(tenant, scope))
    }

    /// The records of an actor's session.
    pub(crate) fn actor(&self, tenant: &str, actor: &str, scope: &str) -> String {
        format!("{}:actor:{}:{}", self.prefix, tag(tenant, scope), encoded(actor))
    }

    /// A bucket.
    pub(crate) fn bucket(&self, tenant: &str, digest: &Digest) -> String {
        format!("{}:quota:{{{}/{}}}", self.prefix, encoded(tenant), hex(digest.as_bytes()))
    }

    /// A pattern for all records.
    pub(crate) fn all_records(&self) -> String {
        format!("{}:idem:*", self.prefix)
    }
}

/// One slot for a session of a tenant.
fn tag(tenant: &str, scope: &str) -> String {
    format!("{{{}/{}}}", encoded(tenant), encoded(scope))
}

/// Whether it is read as it stands, in a name and in a pattern.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn encoded(part: &str) -> String {
    let mut text = String::with_capacity(part.len());
    for byte in part.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut part = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
            part.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            part.push(byte);
        }
    }
    String::from_utf8(part).ok()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The key of `actor:tool:digest` in a session.
pub(crate) fn in_session(tenant: &str, scope: &str, member: &str) -> Option<RecordKey> {
    let (actor, member) = member.split_once(':')?;
    of_actor(tenant, &decoded(actor)?, scope, member)
}

/// The key of `tool:digest` of an actor in a session.
pub(crate) fn of_actor(tenant: &str, actor: &str, scope: &str, member: &str) -> Option<RecordKey> {
    let (tool, digest) = member.split_once(':')?;
    Some(RecordKey {
        tenant: tenant.into(),
        actor: actor.into(),
        scope: scope.into(),
        tool: decoded(tool)?.into(),
        digest: format!("sha256:{digest}").parse().ok()?,
    })
}

/// The key of `scope:actor:tool:digest` of a tenant.
pub(crate) fn of_tenant(tenant: &str, locator: &str) -> Option<RecordKey> {
    let (scope, member) = locator.split_once(':')?;
    in_session(tenant, &decoded(scope)?, member)
}
