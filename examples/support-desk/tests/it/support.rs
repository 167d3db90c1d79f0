//! A desk with three users, and requests to it.

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use support_desk::{App, Command, Config, app_with_clock};
use tower::ServiceExt as _;
use tower_tool_test::FakeClock;

pub(crate) const ALICE: &str = "secret-a";
pub(crate) const BOB: &str = "secret-b";
pub(crate) const CAROL: &str = "secret-c";
const USERS: &str = "alice=secret-a,bob=secret-b:approver,carol=secret-c";

/// What the command line and the environment make of it, with our users in it.
pub(crate) fn config(arguments: &[&str], variables: &[(&str, &str)]) -> Config {
    let command = Command::parse(arguments.iter().map(Into::into), |name| {
        let users = [("SUPPORT_DESK_TOKENS", USERS)];
        variables.iter().chain(&users).find(|(known, _)| *known == name).map(|(_, value)| value.into())
    });
    match command {
        Ok(Command::Serve(config)) => config,
        other => panic!("{other:?}"),
    }
}

/// A desk whose time is the test's.
pub(crate) struct Desk {
    pub(crate) app: App,
    router: Router,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::with(&config(&[], &[]))
    }

    pub(crate) fn with(config: &Config) -> Self {
        Self::of(app_with_clock(config, FakeClock::new()).unwrap())
    }

    pub(crate) fn of(app: App) -> Self {
        let router = app.router();
        Self { app, router }
    }

    /// How many tickets and hand-offs there are: what was executed.
    pub(crate) fn opened(&self) -> usize {
        self.app.tickets().opened().unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, body, text }
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(request(Method::GET, token, path, &[]).body(Body::empty()).unwrap()).await
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, token: &str, tool: &str, headers: &[(&str, &str)], arguments: &Value) -> Answer {
        self.call_as("desk", token, tool, headers, arguments).await
    }

    /// Calls a tool as a worker.
    pub(crate) async fn call_as(
        &self,
        worker: &str,
        token: &str,
        tool: &str,
        headers: &[(&str, &str)],
        arguments: &Value,
    ) -> Answer {
        let path = format!("/workers/{worker}/tools/{tool}");
        self.send(request(Method::POST, token, &path, headers).body(arguments.to_string().into()).unwrap()).await
    }

    /// Calls `create_ticket` in a session.
    pub(crate) async fn ticket(&self, session: &str, headers: &[(&str, &str)]) -> Answer {
        let headers: Vec<_> = headers.iter().copied().chain([("tool-scope", session)]).collect();
        self.call(ALICE, "create_ticket", &headers, &torn_bag()).await
    }

    /// Decides a card, as the one with this token who speaks of this session.
    pub(crate) async fn decide(&self, token: &str, session: &str, card: &Value, approved: bool) -> Answer {
        let body = json!({ "approved": approved, "args_hash": card["args_hash"] });
        let path = format!("/approvals/{}/decision", id(card));
        let headers = [("tool-scope", session)];
        self.send(request(Method::POST, token, &path, &headers).body(body.to_string().into()).unwrap()).await
    }

    /// Asks for a ticket, and says yes.
    pub(crate) async fn approved_ticket(&self, session: &str) -> Answer {
        let card = self.ticket(session, &[]).await.card();
        assert_eq!(self.decide(ALICE, session, &card, true).await.status, StatusCode::OK);
        self.ticket(session, &[]).await
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    /// The card that the call waits for.
    pub(crate) fn card(&self) -> Value {
        assert_eq!(self.status, StatusCode::ACCEPTED, "{}", self.text);
        self.body["error"]["details"].clone()
    }

    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn ticket_id(&self) -> &str {
        self.body["data"]["ticket_id"].as_str().unwrap_or_default()
    }
}

pub(crate) fn request(
    method: Method,
    token: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> axum::http::request::Builder {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "127.0.0.1:3000")
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/json");
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

pub(crate) fn id(card: &Value) -> &str {
    card["approval_id"].as_str().unwrap()
}

pub(crate) fn torn_bag() -> Value {
    json!({ "subject": "Torn bag", "description": "The bag of order A-1024 was torn." })
}
