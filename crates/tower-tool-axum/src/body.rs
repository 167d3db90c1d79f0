//! The body of a request: limited, and JSON if it says what it is.

use axum::body::{Body, Bytes, HttpBody as _};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower_tool::{Category, ToolError, ToolErrorKind};

use crate::respond::Refusal;

/// Reads the whole body.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let announced = body.size_hint().lower();
    if usize::try_from(announced).map_or(true, |announced| announced > limit) {
        return Err(too_large(limit));
    }
    let bytes = match Limited::new(body, limit).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_large(limit)),
        Err(_) => {
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, "the body ended before it was complete")
                .with_safe_message("The body ended before it was complete. Nothing was done.")
                .into());
        }
    };
    if !bytes.is_empty() && !is_json(headers) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UNSUPPORTED_MEDIA_TYPE",
            Category::InvalidArguments,
            "Send the body as `application/json`. Nothing was done.",
        ));
    }
    Ok(bytes)
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "PAYLOAD_TOO_LARGE",
        Category::InvalidArguments,
        format!("The body is larger than {limit} bytes. Nothing was done."),
    )
}

/// Whether the body says that it is JSON, or says nothing.
fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let Some(value) = values.next() else {
        return true;
    };
    let Ok(text) = value.to_str() else {
        return false;
    };
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence == "application/json"
        || essence.strip_prefix("application/").is_some_and(|subtype| subtype.ends_with("+json"));
    is_json && values.next().is_none()
}
