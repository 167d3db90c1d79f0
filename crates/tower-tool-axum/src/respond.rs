//! What goes out: JSON, and refusals in the form of the envelope's error.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::json;
use tower_tool::envelope::Envelope;
use tower_tool::{Category, ToolError, ToolErrorKind};

/// Where a refusal that should say when to come back does not know.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);

/// A response with the headers that all of ours have.
pub(crate) fn response(status: StatusCode, content_type: Option<&'static str>, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(content_type) = content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => response(status, Some("application/json"), bytes.into()),
        Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, None, Body::empty()),
    }
}

/// Whole seconds, rounded up: nobody is to come back too early.
pub(crate) fn retry_after(response: &mut Response, after: Duration) {
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
}

/// A refusal, with the status that says the same.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Response>);

impl Refusal {
    /// A refusal for which the tools have no word.
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        category: Category,
        safe_message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let body = json!({
            "ok": false,
            "error": {
                "code": code,
                "category": category,
                "retryable": false,
                "safe_message": safe_message.into(),
            },
        });
        Self(Box::new(json(status, &body)))
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.0.headers_mut().insert(name, HeaderValue::from_static(value));
        self
    }

    /// There is no such thing, or not for this caller: nobody is told which.
    pub(crate) fn not_found() -> Self {
        ToolError::not_found("there is no such thing").into()
    }

    pub(crate) fn invalid_header(name: &HeaderName, expected: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "INVALID_HEADER",
            Category::InvalidArguments,
            format!("The header `{name}` must be {expected}. Nothing was done."),
        )
    }

    pub(crate) fn into_response(self) -> Response {
        *self.0
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        *self.0
    }
}

impl From<ToolError> for Refusal {
    fn from(error: ToolError) -> Self {
        Self(Box::new(envelope(&Envelope::new(Err(error)))))
    }
}

/// An envelope, with its status and the time to come back.
pub(crate) fn envelope(envelope: &Envelope) -> Response {
    let Err(error) = envelope.result() else {
        return json(StatusCode::OK, envelope);
    };
    let mut response = json(status(error), envelope);
    let must_say_when = matches!(
        error.kind(),
        ToolErrorKind::RateLimited | ToolErrorKind::Overloaded | ToolErrorKind::Unavailable | ToolErrorKind::InProgress
    );
    let after = error.retry_after().or_else(|| must_say_when.then_some(COME_BACK_AFTER));
    if let Some(after) = after {
        retry_after(&mut response, after);
    }
    response
}

fn status(error: &ToolError) -> StatusCode {
    // Without a card there is nothing that could be decided, so nothing was accepted.
    let nobody_to_ask = error.kind() == ToolErrorKind::ApprovalRequired && !error.details().contains_key("approval_id");
    if nobody_to_ask {
        return StatusCode::FORBIDDEN;
    }
    StatusCode::from_u16(error.kind().http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
