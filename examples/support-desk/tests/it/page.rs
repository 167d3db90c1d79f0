//! The page: nothing but our own files can run in it.

use axum::body::Body;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{Request, StatusCode};

use crate::support::Desk;

fn get(path: &str, host: &str) -> Request<Body> {
    Request::builder().uri(path).header(HOST, host).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn the_page_and_its_files_are_served_under_a_policy_that_allows_nothing_else() {
    let desk = Desk::new();
    let page = desk.send(get("/", "localhost:3000")).await;
    assert_eq!(page.headers[CONTENT_TYPE], "text/html; charset=utf-8");
    let policy = page.headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.split("; ").any(|own| own == part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")] {
        assert_eq!(page.headers[name], value);
    }

    // Whatever the page and its modules name is there, and is our own.
    let mut open = vec!["/".to_owned()];
    let mut seen = Vec::new();
    while let Some(path) = open.pop() {
        if seen.contains(&path) {
            continue;
        }
        let file = desk.send(get(&path, "localhost:3000")).await;
        assert_eq!(file.status, StatusCode::OK, "{path}");
        assert!(!file.text.contains("innerHTML") && !file.text.contains("https://"), "{path}");
        let named = file.text.split('"').skip(1).step_by(2);
        open.extend(named.filter_map(|name| {
            let name = name.strip_prefix("./").map(|module| format!("/js/{module}")).unwrap_or(name.to_owned());
            let extension = std::path::Path::new(&name).extension()?;
            (name.starts_with('/') && (extension == "js" || extension == "css")).then_some(name)
        }));
        seen.push(path);
    }
    seen.sort();
    assert!(seen.len() > 8 && seen.contains(&"/js/cards.js".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn neither_the_page_nor_the_story_answers_to_a_strange_host_or_origin() {
    let desk = Desk::new();
    for path in ["/", "/style.css", "/me", "/audit", "/approvals"] {
        let strange = desk.send(get(path, "evil.example")).await;
        assert_eq!((strange.status, strange.code()), (StatusCode::MISDIRECTED_REQUEST, "HOST_NOT_ALLOWED"), "{path}");
        let mut request = get(path, "127.0.0.1:3000");
        request.headers_mut().insert(ORIGIN, "http://evil.example".parse().unwrap());
        let strange = desk.send(request).await;
        assert_eq!((strange.status, strange.code()), (StatusCode::FORBIDDEN, "ORIGIN_NOT_ALLOWED"), "{path}");
    }
}
