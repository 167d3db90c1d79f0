//! Records as they are kept: the record without its result, the result beside it, and a seal on either.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use redis::Value;
use sha2::Sha256;
use tower_tool_core::store::{Body, Record, RecordKey, StoreError};

use crate::keys::hex;

/// Seals records, so that whoever can write to the server but does not have the key cannot make one up.
#[derive(Clone)]
pub(crate) struct SealKey(Hmac<Sha256>);

impl SealKey {
    /// Takes a key of at least 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        // An HMAC takes a key of any length.
        if key.len() < 32 { None } else { Hmac::new_from_slice(key).ok().map(Self) }
    }

    fn over(&self, parts: [&[u8]; 4]) -> Hmac<Sha256> {
        let mut hash = self.0.clone();
        for part in parts {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash
    }
}

// By hand: it is a secret.
impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey([redacted])")
    }
}

/// A record on its way to the server.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) revision: String,
    pub(crate) value: Vec<u8>,
    pub(crate) seal: String,
    pub(crate) body: Vec<u8>,
    pub(crate) body_seal: String,
}

/// What a script gives of a record that is there.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) revision: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) seal: Vec<u8>,
    pub(crate) nonce: Vec<u8>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) body_seal: Vec<u8>,
}

/// The answer of a script.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: String,
    pub(crate) now: u64,
    /// Whether `now` is the server's own time.
    pub(crate) certain: bool,
    pub(crate) found: Option<Found>,
    /// The rest: the ids of cards that the record before had, or a waiting time.
    pub(crate) rest: String,
}

impl Reply {
    pub(crate) fn read(value: Value) -> Result<Self, StoreError> {
        let strange = || StoreError::unavailable("the server gave an answer that no script gives");
        let Value::Array(parts) = value else { return Err(strange()) };
        let mut parts = parts.into_iter();
        let status = parts.next().and_then(bytes).and_then(|status| String::from_utf8(status).ok());
        let mut number = || match parts.next() {
            Some(Value::Int(number)) => u64::try_from(number).ok(),
            _ => None,
        };
        let (status, now, certain) = (status.ok_or_else(strange)?, number(), number());
        let mut reply = Self { status, now: now.ok_or_else(strange)?, certain: certain == Some(1), ..Self::default() };
        let rest: Vec<_> = parts.map(bytes).collect();
        let mut rest = rest.into_iter();
        if reply.status == "over" {
            reply.rest = text(rest.next().flatten());
            return Ok(reply);
        }
        if let Some(Some(revision)) = rest.next() {
            let mut next = || rest.next().flatten();
            reply.found = Some(Found {
                revision,
                value: next().unwrap_or_default(),
                seal: next().unwrap_or_default(),
                nonce: next().unwrap_or_default(),
                body: next(),
                body_seal: next().unwrap_or_default(),
            });
        } else {
            rest.nth(4);
        }
        reply.rest = text(rest.next().flatten());
        Ok(reply)
    }
}

fn text(part: Option<Vec<u8>>) -> String {
    part.and_then(|part| String::from_utf8(part).ok()).unwrap_or_default()
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// Writes and reads records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codec {
    pub(crate) seal: Option<SealKey>,
}

impl Codec {
    pub(crate) fn encode(&self, name: &str, record: &Record) -> Result<Encoded, StoreError> {
        let revision = record.revision.to_string();
        let body = record.body().map(|body| serde_json::to_vec(body.value())).transpose();
        let value = match record.body() {
            Some(_) => serde_json::to_vec(&record.without_body()),
            None => serde_json::to_vec(record),
        };
        let (value, body) =
            (value.map_err(StoreError::corrupt)?, body.map_err(StoreError::corrupt)?.unwrap_or_default());
        let seal = |what: &str, of: &[u8]| match &self.seal {
            Some(seal) => {
                hex(&seal.over([what.as_bytes(), name.as_bytes(), revision.as_bytes(), of]).finalize().into_bytes())
            }
            None => String::new(),
        };
        let body_seal = if body.is_empty() { String::new() } else { seal("result", &body) };
        Ok(Encoded { seal: seal("record", &value), value, body_seal, body, revision })
    }

    /// Checks and reads what was found under the name of this key.
    pub(crate) fn decode(&self, name: &str, key: Option<&RecordKey>, found: &Found) -> Result<Arc<Record>, StoreError> {
        let corrupt = |what: &str| StoreError::corrupt(format!("`{name}`: {what}"));
        let check = |what: &str, of: &[u8], seal: &[u8]| match &self.seal {
            Some(key) => unhex(seal).is_some_and(|seal| {
                key.over([what.as_bytes(), name.as_bytes(), &found.revision, of]).verify_slice(&seal).is_ok()
            }),
            // Whoever changed it without the key would leave it without a seal for those who have the key.
            None => seal.is_empty(),
        };
        if !check("record", &found.value, &found.seal) {
            return Err(corrupt(match &self.seal {
                Some(_) => "the seal is not that of the record",
                None => "it is sealed, and there is no seal key here",
            }));
        }
        let record: Record =
            serde_json::from_slice(&found.value).map_err(|error| corrupt(&format!("not a record: {error}")))?;
        if !record.is_readable() {
            return Err(corrupt("written by a version that is not known here"));
        }
        if key.is_some_and(|key| *key != record.key) {
            return Err(corrupt("the record of another intent"));
        }
        if record.revision.to_string().as_bytes() != found.revision {
            return Err(corrupt("the revision is not that of the record"));
        }
        let Some(body) = &found.body else { return Ok(Arc::new(record)) };
        if !check("result", body, &found.body_seal) {
            return Err(corrupt("the seal is not that of the result"));
        }
        let body = serde_json::from_slice(body).map_err(|error| corrupt(&format!("not a result: {error}")))?;
        Ok(Arc::new(record.with_body(Body::new(Arc::new(body)))))
    }
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = text.chunks_exact(2);
    if text.is_empty() || !pairs.remainder().is_empty() {
        return None;
    }
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
            _ => None,
        })
        .collect()
}
