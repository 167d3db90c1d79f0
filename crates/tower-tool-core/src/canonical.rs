//! The canonical form of a JSON value, version 1.
//!
//! Key order and number text follow [RFC 8785](https://www.rfc-editor.org/rfc/rfc8785) (JSON Canonicalization Scheme), with
//! one difference: an integer keeps every digit instead of being rounded to a double. Numbers that are equal are written
//! equally, however they were spelled: `1`, `1.0` and `1e0` are all `1`.
//!
//! The writer sorts and formats by itself. It does not depend on `serde_json`'s `preserve_order` or `arbitrary_precision`
//! being switched on somewhere in the build.
//!
//! ```
//! use serde_json::json;
//! use tower_tool_core::canonical;
//!
//! let value = json!({ "b": [1.0, 1e-7], "a": "\u{1}é" });
//! assert_eq!(canonical::to_string(&value), r#"{"a":"\u0001é","b":[1,1e-7]}"#);
//! ```

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

use crate::{Digest, Redacted};

/// The version of the form that this module writes.
pub const VERSION: u8 = 1;

/// Where the canonical bytes go.
trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes the canonical form of `value` as text.
pub fn to_string(value: &Value) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes, value, &[]);
    // The writer copies strings as they are and adds only ASCII.
    String::from_utf8(bytes).unwrap_or_default()
}

/// A deployment's secret key for the hashes of arguments.
///
/// Whoever sees the plain hash of arguments with few possible values, a phone number say, can find the arguments by trying. With a
/// key the hashes are HMAC-SHA256 (RFC 2104), and only who has the key can try. All processes that share a ledger need the
/// same one.
///
/// ```
/// use tower_tool_core::canonical::HashKey;
///
/// assert!(HashKey::new(b"too short").is_none());
/// let key = HashKey::new(&[7; 32]).unwrap();
/// assert_eq!(format!("{key:?}"), "HashKey([redacted])");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey(Arc<[u8]>);

impl HashKey {
    /// Takes a key of at least 32 bytes, `None` if it is shorter.
    pub fn new(key: &[u8]) -> Option<Self> {
        (key.len() >= 32).then(|| Self(key.into()))
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HashKey").field(&Redacted::new(())).finish()
    }
}

/// A SHA-256, or with a key an HMAC-SHA256, over length-prefixed parts.
///
/// No two lists of parts feed the hash the same bytes. The first part names what is hashed, and its version.
pub(crate) enum Hasher {
    Plain(Sha256),
    Keyed(Box<Hmac<Sha256>>),
}

impl Sink for Hasher {
    fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(hash) => hash.update(bytes),
            Self::Keyed(hash) => hash.update(bytes),
        }
    }
}

impl Hasher {
    pub(crate) fn new(domain: &str, key: Option<&HashKey>) -> Self {
        // An HMAC takes a key of any length, so there always is one.
        let keyed = key.and_then(|key| Hmac::new_from_slice(&key.0).ok());
        keyed.map_or_else(|| Self::Plain(Sha256::new()), |hash| Self::Keyed(Box::new(hash))).part(domain)
    }

    pub(crate) fn part(mut self, text: &str) -> Self {
        self.put(&(text.len() as u64).to_be_bytes());
        self.put(text.as_bytes());
        self
    }

    pub(crate) fn digest_part(mut self, digest: &Digest) -> Self {
        self.put(digest.as_bytes());
        self
    }

    /// The canonical form of a value, without the top-level members named in `leave_out`. It ends where it ends, so it needs
    /// no length, but it must be the last part or be followed by a part of fixed size.
    pub(crate) fn value(mut self, value: &Value, leave_out: &[String]) -> Self {
        write(&mut self, value, leave_out);
        self
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::from_bytes(match self {
            Self::Plain(hash) => hash.finalize().into(),
            Self::Keyed(hash) => hash.finalize().into_bytes().into(),
        })
    }
}

fn write<S: Sink>(out: &mut S, value: &Value, leave_out: &[String]) {
    match value {
        Value::Null => out.put(b"null"),
        Value::Bool(true) => out.put(b"true"),
        Value::Bool(false) => out.put(b"false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.put(b"[");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.put(b",");
                }
                write(out, item, &[]);
            }
            out.put(b"]");
        }
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> =
                members.iter().filter(|(key, _)| !leave_out.contains(key)).collect();
            sorted.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.put(b"{");
            for (index, (key, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.put(b",");
                }
                write_string(out, key);
                out.put(b":");
                write(out, member, &[]);
            }
            out.put(b"}");
        }
    }
}

/// RFC 8785 §3.2.2.2: the two-character escapes, `\u00xx` in lower case for other controls, everything else as it is.
fn write_string<S: Sink>(out: &mut S, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.put(b"\"");
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, 0..=0x1f | b'"' | b'\\')) {
        let (plain, tail) = rest.split_at(at);
        out.put(plain);
        let Some((&byte, after)) = tail.split_first() else {
            break;
        };
        match byte {
            b'"' => out.put(b"\\\""),
            b'\\' => out.put(b"\\\\"),
            0x08 => out.put(b"\\b"),
            0x09 => out.put(b"\\t"),
            0x0a => out.put(b"\\n"),
            0x0c => out.put(b"\\f"),
            0x0d => out.put(b"\\r"),
            control => {
                let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
                out.put(&[b'\\', b'u', b'0', b'0', digit(control >> 4), digit(control & 0xf)]);
            }
        }
        rest = after;
    }
    out.put(rest);
    out.put(b"\"");
}

fn write_number<S: Sink>(out: &mut S, number: &Number) {
    if let Some(integer) = number.as_i64() {
        write_integer(out, integer < 0, integer.unsigned_abs());
    } else if let Some(integer) = number.as_u64() {
        write_integer(out, false, integer);
    } else if let Some(float) = number.as_f64().filter(|float| float.is_finite()) {
        // ECMA-262 `Number::toString`, which RFC 8785 §3.2.2.3 refers to.
        out.put(ryu_js::Buffer::new().format(float).as_bytes());
    } else {
        // Only `arbitrary_precision` lets such a number into a `Value`; its own text is then the one thing that is exact.
        out.put(number.to_string().as_bytes());
    }
}

fn write_integer<S: Sink>(out: &mut S, negative: bool, mut magnitude: u64) {
    // The longest, 2^64 - 1, has 20 digits.
    let mut digits = [b'0'; 20];
    let mut count = 0;
    for slot in digits.iter_mut().rev() {
        let digit = u8::try_from(magnitude % 10).unwrap_or_default();
        *slot = b'0' + digit;
        magnitude /= 10;
        count += 1;
        if magnitude == 0 {
            break;
        }
    }
    if negative {
        out.put(b"-");
    }
    out.put(digits.get(digits.len() - count..).unwrap_or_default());
}

#[cfg(test)]
mod tests;
