//! The page: files that are compiled in, served so that nothing but they can run.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::routing::get;

/// No script but ours, no markup made from text, no frame around it, nothing from anywhere else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! file {
    ($path:literal, $kind:ident) => {
        (concat!("/", $path), $kind, include_str!(concat!("../web/", $path)))
    };
}

const FILES: [(&str, &str, &str); 11] = [
    ("/", HTML, include_str!("../web/index.html")),
    file!("style.css", CSS),
    file!("js/answers.js", SCRIPT),
    file!("js/api.js", SCRIPT),
    file!("js/arm.js", SCRIPT),
    file!("js/audit.js", SCRIPT),
    file!("js/cards.js", SCRIPT),
    file!("js/form.js", SCRIPT),
    file!("js/json.js", SCRIPT),
    file!("js/main.js", SCRIPT),
    file!("js/text.js", SCRIPT),
];

const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

pub(crate) fn routes() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        let headers = [
            (CONTENT_TYPE, kind),
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, "no-referrer"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
            (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
        ];
        router.route(path, get(async move || (headers, text)))
    })
}
