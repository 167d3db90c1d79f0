//! A browser, driven through the `WebDriver` protocol (W3C Recommendation, 5 June 2018): the few commands that the tests need.
//!
//! The crates that speak all of it bring some hundred others; this is one JSON request per command.

use std::env;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long a condition is waited for, and any single command.
const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST_COMMAND: Duration = Duration::from_secs(60);
/// The name under which an element is referred to: §11 of the recommendation.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys that are not text: §17.4.2.
pub(super) mod key {
    pub(crate) const TAB: char = '\u{e004}';
    pub(crate) const ENTER: char = '\u{e007}';
    pub(crate) const SHIFT: char = '\u{e008}';
}

/// One window of a browser of its own.
pub(super) struct Browser {
    http: Client<HttpConnector, Full<Bytes>>,
    /// The driver's address, and once there is one the session's.
    base: String,
}

impl Browser {
    /// Runs a test in a new browser, which is closed whatever comes of it.
    pub(super) async fn with<F: AsyncFnOnce(&Self)>(test: F) {
        let browser = Self::open().await;
        let outcome = AssertUnwindSafe(test(&browser)).catch_unwind().await;
        if outcome.is_err() {
            browser.tell_what_is_there().await;
        }
        let closed = browser.command(Method::DELETE, "", None).await;
        match outcome {
            Err(panic) => resume_unwind(panic),
            Ok(()) => _ = closed.unwrap(),
        }
    }

    async fn open() -> Self {
        let variable = |name: &str| {
            env::var(name).unwrap_or_else(|_| {
                panic!("`{name}` is not set: browser tests are run by `cargo xtask test`, which starts what they need")
            })
        };
        let (driver, chromium) = (variable("CHROMEDRIVER_URL"), variable("CHROMIUM"));
        let http = Client::builder(TokioExecutor::new()).build_http();
        let mut browser = Self { http, base: driver.trim_end_matches('/').to_owned() };
        // No sandbox: root has none, and nothing but our own page is loaded.
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000"];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": PATIENCE.as_millis(), "pageLoad": PATIENCE.as_millis(), "implicit": 0 },
        }}});
        let session = browser.command(Method::POST, "/session", Some(wanted)).await.unwrap();
        let id = session["sessionId"].as_str().expect("a session has an id");
        browser.base = format!("{}/session/{id}", browser.base);
        browser
    }

    async fn command(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, String> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json; charset=utf-8")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = async {
            let response = self.http.request(request).await.map_err(|error| format!("{error:?}"))?;
            let is_success = response.status().is_success();
            let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
            let mut answer: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            let value = answer["value"].take();
            if is_success { Ok(value) } else { Err(format!("{}: {}", value["error"], value["message"])) }
        };
        timeout(LONGEST_COMMAND, answer).await.map_err(|_| format!("`{path}` took too long"))?
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.command(Method::POST, path, Some(body)).await.unwrap()
    }

    /// Loads a page.
    pub(super) async fn go(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await;
    }

    /// The value of a JavaScript expression; `$` is `document.querySelector`.
    pub(super) async fn value(&self, expression: &str) -> Value {
        self.value_with(expression, Value::Null).await
    }

    /// As [`value`](Self::value), with arguments, which are named `a`.
    pub(super) async fn value_with(&self, expression: &str, arguments: Value) -> Value {
        let script =
            format!("const $ = (css) => document.querySelector(css), a = arguments[0]; return ({expression});");
        self.post("/execute/sync", json!({ "script": script, "args": [arguments] })).await
    }

    /// Waits until the expression is true in the browser, looking again before every frame.
    pub(super) async fn until(&self, expression: &str) {
        self.until_with(expression, Value::Null).await;
    }

    /// As [`until`](Self::until), with arguments.
    pub(super) async fn until_with(&self, expression: &str, arguments: Value) {
        let script = format!(
            "const $ = (css) => document.querySelector(css), a = arguments[0], done = arguments[arguments.length - 1]; \
             (function look() {{ if ({expression}) done(true); else setTimeout(look, 16); }})();"
        );
        let waited =
            self.command(Method::POST, "/execute/async", Some(json!({ "script": script, "args": [arguments] }))).await;
        if let Err(error) = waited {
            panic!("waited in vain for `{expression}`: {error}");
        }
    }

    /// The text of the element, with what is not shown left out.
    pub(super) async fn text(&self, css: &str) -> String {
        let element = self.find(css).await;
        let text = self.command(Method::GET, &format!("/element/{element}/text"), None).await.unwrap();
        text.as_str().unwrap_or_default().to_owned()
    }

    async fn find(&self, css: &str) -> String {
        let found = self.post("/element", json!({ "using": "css selector", "value": css })).await;
        found[ELEMENT].as_str().expect("an element has a reference").to_owned()
    }

    /// Clicks where the element is, if nothing covers it.
    pub(super) async fn click(&self, css: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/click"), json!({})).await;
    }

    /// Types into a field, in place of what it held.
    pub(super) async fn fill(&self, css: &str, text: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/clear"), json!({})).await;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    /// Puts text into a field as pasting does: at once, and with characters that no key gives.
    pub(super) async fn paste(&self, css: &str, text: &str) {
        self.value_with("$(a.css).value = a.text", json!({ "css": css, "text": text })).await;
    }

    /// Chooses an option, as a person would who then leaves the field.
    pub(super) async fn choose(&self, css: &str, value: &str) {
        self.click(&format!(r#"{css} option[value="{value}"]"#)).await;
    }

    /// Presses and releases keys, wherever the focus is.
    pub(super) async fn press(&self, keys: &[char]) {
        let downs = keys.iter().map(|key| json!({ "type": "keyDown", "value": key }));
        let ups = keys.iter().rev().map(|key| json!({ "type": "keyUp", "value": key }));
        let actions: Vec<_> = downs.chain(ups).collect();
        self.post("/actions", json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] })).await;
    }

    /// Moves the wheel over the middle of the element.
    pub(super) async fn scroll(&self, css: &str, by: i64) {
        let element = self.find(css).await;
        let scroll = json!({
            "type": "scroll", "x": 0, "y": 0, "deltaX": 0, "deltaY": by, "duration": 0, "origin": { ELEMENT: element },
        });
        self.post("/actions", json!({ "actions": [{ "type": "wheel", "id": "wheel", "actions": [scroll] }] })).await;
    }

    /// What the console was told.
    pub(super) async fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", json!({ "type": "browser" })).await;
        let messages = entries.as_array().into_iter().flatten().filter_map(|entry| entry["message"].as_str());
        messages.map(str::to_owned).collect()
    }

    async fn tell_what_is_there(&self) {
        let text = self.command(
            Method::POST,
            "/execute/sync",
            Some(json!({
                "script": "return document.body.innerText", "args": [],
            })),
        );
        println!("the page when the test failed:\n{}", text.await.unwrap_or_default().as_str().unwrap_or_default());
        if let Ok(log) = self.command(Method::POST, "/se/log", Some(json!({ "type": "browser" }))).await {
            println!("its console: {log}");
        }
    }
}
