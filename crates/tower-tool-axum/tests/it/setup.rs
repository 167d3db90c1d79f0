//! A service with three tools and four users, and requests to it.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use tower_tool::memory::MemoryLedger;
use tower_tool::{BoxToolset, Ledger, Principal, Risk, Stack, Toolset};
use tower_tool_axum::{Identity, StaticTokens, ToolRouter, ToolRouterBuilder};
use tower_tool_test::{FakeClock, MockTool};

/// Calls and decides nothing of her own; uses the worker `order`.
pub(crate) const ALICE: &str = "token-of-alice";
/// Approver of the same tenant; uses every worker.
pub(crate) const BOB: &str = "token-of-bob";
/// Of the same tenant, uses no worker, approves nothing.
pub(crate) const CAROL: &str = "token-of-carol";
/// Approver of another tenant, who knows every id.
pub(crate) const MALLORY: &str = "token-of-mallory";

pub(crate) struct Setup {
    pub(crate) clock: FakeClock,
    pub(crate) ledger: Ledger,
    /// R0.
    pub(crate) status: MockTool,
    /// R2: no approval.
    pub(crate) note: MockTool,
    /// R4: approval.
    pub(crate) refund: MockTool,
    pub(crate) tools: BoxToolset,
    pub(crate) router: ToolRouter,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(change: impl FnOnce(ToolRouterBuilder) -> ToolRouterBuilder) -> Self {
        let text = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
        let amount = json!({
            "type": "object",
            "properties": { "order": { "type": "string" }, "password": { "type": "string" } },
            "required": ["order"],
        });
        let clock = FakeClock::new();
        let ledger = Ledger::new(MemoryLedger::with_clock(clock.clone()));
        let status = MockTool::new("get_status", Risk::PublicRead);
        let note = MockTool::with_schema("add_note", Risk::ReversibleWrite, text);
        let refund = MockTool::with_schema("refund", Risk::Critical, amount);
        let tools = Toolset::builder()
            .tool(status.tool())
            .tool(note.tool())
            .tool(refund.tool())
            .build()
            .unwrap()
            .layer(Stack::recommended(&ledger))
            .boxed();
        let builder = ToolRouter::builder(&ledger, tokens())
            .tools(tools.clone())
            .worker("order", tools.select(["get_status"]).unwrap());
        let router = change(builder).build().unwrap();
        Self { clock, ledger, status, note, refund, tools, router }
    }

    pub(crate) async fn send(&self, ask: Ask) -> Answer {
        Answer::of(self.open(ask).await).await
    }

    /// The response before its body is read.
    pub(crate) async fn open(&self, ask: Ask) -> Response {
        self.router.clone().oneshot(ask.request()).await.unwrap()
    }

    /// Asks for a refund as Alice, in `session-1`, and gives the ticket.
    pub(crate) async fn ticket(&self, order: &str) -> Value {
        let answer = self.send(refund(order)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
        answer.body["error"]["details"].clone()
    }
}

fn tokens() -> StaticTokens {
    let identity = |tenant: &str, actor: &str| Identity::new(Principal::new(tenant, actor));
    StaticTokens::new()
        .with(ALICE, identity("acme", "alice").with_workers(["order"]))
        .unwrap()
        .with(BOB, identity("acme", "bob").with_all_workers().as_approver())
        .unwrap()
        .with(CAROL, identity("acme", "carol"))
        .unwrap()
        .with(MALLORY, identity("evil", "alice").with_all_workers().as_approver())
        .unwrap()
}

/// A request, to be sent to `localhost:3000` unless told otherwise.
#[derive(Clone)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

pub(crate) fn ask(method: Method, path: impl Into<String>) -> Ask {
    Ask { method, path: path.into(), headers: HeaderMap::new(), body: Vec::new() }.header("host", "localhost:3000")
}

/// As Alice, in `session-1`.
pub(crate) fn get(path: impl Into<String>) -> Ask {
    ask(Method::GET, path).token(ALICE).scope("session-1")
}

/// As Alice, in `session-1`.
pub(crate) fn post(path: impl Into<String>, body: Value) -> Ask {
    ask(Method::POST, path).token(ALICE).scope("session-1").json(body)
}

pub(crate) fn refund(order: &str) -> Ask {
    post("/tools/refund", json!({ "order": order }))
}

pub(crate) fn note(text: &str) -> Ask {
    post("/tools/add_note", json!({ "text": text }))
}

/// The decision of this token's owner about the ticket, in no session.
pub(crate) fn decision(token: &str, ticket: &Value, approved: bool) -> Ask {
    let id = ticket["approval_id"].as_str().unwrap();
    ask(Method::POST, format!("/approvals/{id}/decision"))
        .token(token)
        .json(json!({ "approved": approved, "args_hash": ticket["args_hash"] }))
}

impl Ask {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn another(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(name, value.parse().unwrap());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn scope(self, scope: &str) -> Self {
        self.header("tool-scope", scope)
    }

    pub(crate) fn json(self, body: Value) -> Self {
        self.header("content-type", "application/json").text(body.to_string())
    }

    pub(crate) fn text(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn request(self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.parse().unwrap();
        *request.headers_mut() = self.headers;
        request
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// `null` if the body is empty.
    pub(crate) body: Value,
}

impl Answer {
    /// Reads the body, and checks what is so of every response.
    pub(crate) async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(parts.headers["cache-control"], "no-store");
        assert_eq!(parts.headers["x-content-type-options"], "nosniff");
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            assert_eq!(parts.headers["content-type"], "application/json");
            serde_json::from_slice(&bytes).unwrap()
        };
        if parts.status.is_client_error() || parts.status.is_server_error() {
            assert_eq!(body["ok"], false, "{body}");
            for member in ["code", "category", "retryable", "safe_message"] {
                assert!(!body["error"][member].is_null(), "{member}: {body}");
            }
        }
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn assert(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code()), (status, code), "{}", self.body);
    }

    #[track_caller]
    pub(crate) fn assert_ok(&self) {
        assert_eq!(self.status, StatusCode::OK, "{}", self.body);
    }
}
