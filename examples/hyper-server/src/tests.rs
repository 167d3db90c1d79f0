//! Over real sockets.

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1 as client;
use hyper::{Request, StatusCode};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tower_tool_test::MockTool;

use super::*;

struct Server {
    address: String,
    end: oneshot::Sender<()>,
    ended: JoinSet<Result<(), String>>,
}

impl Server {
    async fn start(router: ToolRouter, ledger: Ledger) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (end, told) = oneshot::channel();
        let mut ended = JoinSet::new();
        ended.spawn(async move {
            let told = async { _ = told.await };
            let served = serve(listener, router, ledger, told).await;
            served.map_err(|error| error.to_string())
        });
        Self { address, end, ended }
    }

    /// A connection of its own for one request. Dropping the future closes it.
    async fn send(&self, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await.unwrap();
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn request(&self, method: &str, path: &str) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.address)
            .header("authorization", "Bearer a-token")
            .header("tool-scope", "session-1")
            .body(Full::default())
            .unwrap()
    }

    async fn end(mut self) {
        self.end.send(()).unwrap();
        self.ended.join_next().await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_read_and_an_effect_that_is_repeated() {
    let ledger = Ledger::memory();
    let server = Server::start(router(&ledger, "a-token").unwrap(), ledger).await;
    let (status, body) = server.send(server.request("GET", "/tools")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["tools"][1]["name"], "ring_the_bell");
    let (_, body) = server.send(server.request("POST", "/tools/opening_hours")).await;
    assert_eq!(body["data"]["open"], "08:00");
    for replayed in [false, true] {
        let (status, body) = server.send(server.request("POST", "/tools/ring_the_bell")).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(body["data"], "ding");
        assert_eq!(body["meta"]["replayed"], replayed);
    }
    let mut stranger = server.request("POST", "/tools/ring_the_bell");
    stranger.headers_mut().remove("authorization");
    let (status, body) = server.send(stranger).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(body["error"]["code"], "UNAUTHENTICATED");
    server.end().await;
}

/// oxidecomputer/dropshot#701: the client goes while the tool is at work.
#[tokio::test]
async fn a_closed_connection_stops_no_effect() {
    let ledger = Ledger::memory();
    let bell = MockTool::new("ring_the_bell", Risk::ReversibleWrite);
    bell.hold();
    let tools = Toolset::builder().tool(bell.tool()).build().unwrap().layer(Stack::recommended(&ledger));
    let known = Identity::new(Principal::new("shop", "clerk"));
    let tokens = StaticTokens::new().with("a-token", known).unwrap();
    let router = ToolRouter::builder(&ledger, tokens).tools(tools).build().unwrap();
    let server = Server::start(router, ledger).await;

    tokio::select! {
        _ = server.send(server.request("POST", "/tools/ring_the_bell")) => panic!("the tool is held"),
        () = bell.until_started(1) => {}
    }
    bell.release();
    let (_, body) = server.send(server.request("POST", "/tools/ring_the_bell")).await;
    assert_eq!(body["data"]["answer"], 1);
    assert_eq!(body["meta"]["replayed"], true);
    bell.assert_effects(1);
    server.end().await;
}
