//! What trusted code takes from a request's headers.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tower_tool::{ApprovalId, CallContext, IdempotencyKey, Scope, ToolError, ToolErrorKind};

use crate::auth::Identity;
use crate::respond::Refusal;

pub(crate) const TOOL_SCOPE: HeaderName = HeaderName::from_static("tool-scope");
const TOOL_RUN: HeaderName = HeaderName::from_static("tool-run");
const TOOL_STEP: HeaderName = HeaderName::from_static("tool-step");
const TOOL_AGENT: HeaderName = HeaderName::from_static("tool-agent");
const TOOL_APPROVAL: HeaderName = HeaderName::from_static("tool-approval");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Longest accepted name, in bytes, as for a scope.
const LONGEST: usize = 256;
const A_NAME: &str = "one value of 1 to 256 visible characters";

/// The one value of a header. Two of them would be two intentions.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName, expected: &str) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text.trim())),
        _ => Err(Refusal::invalid_header(name, expected)),
    }
}

fn name<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let value = one(headers, header, A_NAME)?;
    match value {
        Some(text) if text.is_empty() || text.len() > LONGEST || text.contains('\t') => {
            Err(Refusal::invalid_header(header, A_NAME))
        }
        _ => Ok(value),
    }
}

/// The session that the request speaks of.
pub(crate) fn scope(headers: &HeaderMap) -> Result<Option<Scope>, Refusal> {
    name(headers, &TOOL_SCOPE)?
        .map(|text| Scope::new(text).map_err(|_| Refusal::invalid_header(&TOOL_SCOPE, A_NAME)))
        .transpose()
}

/// Who calls, in which session, as part of what.
pub(crate) fn context(identity: &Identity, headers: &HeaderMap) -> Result<CallContext, Refusal> {
    let mut principal = identity.principal().clone();
    if let Some(agent) = name(headers, &TOOL_AGENT)? {
        match principal.agent() {
            None => principal = principal.with_agent(agent),
            Some(own) if own == agent => {}
            Some(_) => {
                return Err(ToolError::new(ToolErrorKind::PermissionDenied, "the credential is for another agent")
                    .with_safe_message("The credential is for another agent. Nothing was done.")
                    .into());
            }
        }
    }
    let mut context = match scope(headers)? {
        Some(scope) => CallContext::new(principal, scope),
        None => CallContext::without_scope(principal),
    };
    if let Some(run) = name(headers, &TOOL_RUN)? {
        context = context.with_run(run);
    }
    if let Some(step) = name(headers, &TOOL_STEP)? {
        context = context.with_step(step);
    }
    Ok(context)
}

/// The approval that the call comes back with. What is no id is the id of nothing.
pub(crate) fn approval(headers: &HeaderMap) -> Result<Option<ApprovalId>, Refusal> {
    one(headers, &TOOL_APPROVAL, "one approval id")?
        .map(|text| {
            text.parse()
                .map_err(|_| Refusal::from(ToolError::new(ToolErrorKind::ApprovalNotFound, "the approval id is none")))
        })
        .transpose()
}

/// The caller's own key: a String of RFC 8941 §3.3.3, as draft-ietf-httpapi-idempotency-key-header has it, or a bare token.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Refusal> {
    const EXPECTED: &str = "one quoted string, or one token, of 1 to 256 characters, not blank";
    one(headers, &IDEMPOTENCY_KEY, EXPECTED)?
        .map(|text| {
            key_text(text)
                .and_then(|key| IdempotencyKey::new(key).ok())
                .ok_or_else(|| Refusal::invalid_header(&IDEMPOTENCY_KEY, EXPECTED))
        })
        .transpose()
}

fn key_text(text: &str) -> Option<String> {
    let Some(quoted) = text.strip_prefix('"') else {
        let is_bare = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\');
        return text.bytes().all(is_bare).then(|| text.to_owned());
    };
    let mut key = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => match chars.next()? {
                escaped @ ('"' | '\\') => key.push(escaped),
                _ => return None,
            },
            plain @ ' '..='~' => key.push(plain),
            _ => return None,
        }
    }
    // Parameters could make two keys of one, so none is taken.
    chars.as_str().is_empty().then_some(key)
}

/// How long the caller would wait: the first `wait` of RFC 7240 §4.3. What cannot be understood is not preferred.
pub(crate) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers
        .get_all(PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| outside_quotes(value, b','));
    for preference in preferences {
        let preference = outside_quotes(preference, b';').next().unwrap_or_default();
        let Some((name, value)) = preference.split_once('=') else {
            continue;
        };
        if name.trim().eq_ignore_ascii_case("wait") {
            let value = value.trim();
            let digits = value.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"')).unwrap_or(value);
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            return is_number.then(|| digits.parse().ok()).flatten().map(Duration::from_secs);
        }
    }
    None
}

/// Splits where the separator does not stand between quotes.
fn outside_quotes(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |char: char| {
        let was_escaped = std::mem::take(&mut escaped);
        match char {
            '\\' if quoted && !was_escaped => escaped = true,
            '"' if !was_escaped => quoted = !quoted,
            _ => {}
        }
        !quoted && char == char::from(separator)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_key_is_a_structured_string_or_a_bare_token() {
        for (text, expected) in [
            (r#""8e03978e-40d5""#, Some("8e03978e-40d5")),
            ("8e03978e-40d5", Some("8e03978e-40d5")),
            (r#""a \"b\" \\ c""#, Some(r#"a "b" \ c"#)),
            (r#""a, b;c""#, Some("a, b;c")),
            (r#""unfinished"#, None),
            (r#""a\n""#, None),
            (r#""a";b=1"#, None),
            ("a b", None),
            ("a,b", None),
            (r#"a"b"#, None),
        ] {
            assert_eq!(key_text(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_first_wait_counts_and_nonsense_is_not_preferred() {
        for (values, expected) in [
            (&["wait=5"][..], Some(5)),
            (&["respond-async, wait = \"7\"; x=1, wait=9"], Some(7)),
            (&["respond-async", "WAIT=3"], Some(3)),
            (&["note=\"a, wait=4\""], None),
            (&["wait=-1, wait=4"], None),
            (&["wait=5s"], None),
            (&["wait=99999999999999999999"], None),
            (&["wait"], None),
            (&[], None),
        ] {
            let headers: HeaderMap = values.iter().map(|value| (PREFER, HeaderValue::from_static(value))).collect();
            let wait = preferred_wait(&headers).map(|wait| wait.as_secs());
            assert_eq!(wait, expected, "{values:?}");
        }
    }
}
