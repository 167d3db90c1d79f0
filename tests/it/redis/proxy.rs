//! The proxy: what it counts, holds, swallows and cuts.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tower_tool_tests::redis::{Connection, Direction, Options, Proxy, RedisServer, until};

/// Long enough for what is on its way to have arrived.
const LONG_ENOUGH: Duration = Duration::from_millis(300);

async fn server_and_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    (server, proxy)
}

async fn client(proxy: &Proxy) -> Connection {
    Connection::open(proxy.address()).await.unwrap()
}

/// How often the server ran `INCR k`.
async fn effects(server: &RedisServer) -> i64 {
    server.command(&["GET", "k"]).await.unwrap().integer().unwrap_or(0)
}

#[tokio::test]
async fn commands_replies_and_round_trips_are_counted() {
    let (_server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    connection.command(&["set", "k", "v"]).await.unwrap();
    connection.command(&["GET", "k"]).await.unwrap();
    let mut pipe = TcpStream::connect(proxy.address()).await.unwrap();
    pipe.write_all(b"PING\r\nPING\r\nPING\r\n").await.unwrap();
    pipe.read_exact(&mut [0; 21]).await.unwrap();
    let traffic = proxy.traffic();
    assert_eq!(traffic.commands, ["SET", "GET", "PING", "PING", "PING"]);
    assert_eq!((traffic.count("ping"), traffic.replies, traffic.connections), (3, 5, 2));
    assert_eq!(traffic.round_trips, 3);
    assert_eq!(traffic.reply_bytes, 5 + 7 + 21);
    proxy.forget();
    assert_eq!(proxy.traffic().commands.len(), 0);
}

#[tokio::test]
async fn a_reply_that_is_cut_off_belongs_to_a_command_that_ran() {
    let (server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    connection.command(&["PING"]).await.unwrap();
    proxy.cut_after(Direction::Replies, 0);
    assert!(connection.command(&["INCR", "k"]).await.is_err());
    assert_eq!(effects(&server).await, 1);
    assert_eq!(proxy.traffic().cuts, 1);
    // It cuts once.
    assert_eq!(client(&proxy).await.command(&["INCR", "k"]).await.unwrap().integer(), Some(2));
}

#[tokio::test]
async fn a_command_that_is_cut_short_does_not_run() {
    let (server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    proxy.cut_after(Direction::Commands, 10);
    assert!(connection.command(&["INCR", "k"]).await.is_err());
    assert_eq!((effects(&server).await, proxy.traffic().commands.len()), (0, 0));
    assert_eq!(proxy.traffic().command_bytes, 10);
}

#[tokio::test]
async fn a_command_that_passed_whole_before_the_cut_runs() {
    let (server, proxy) = server_and_proxy().await;
    let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
    let command = b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n";
    proxy.cut_after(Direction::Commands, command.len() as u64);
    connection.write_all(&[&command[..], command].concat()).await.unwrap();
    until("the cut", async || Ok(proxy.traffic().cuts == 1)).await.unwrap();
    until("the effect", async || Ok(effects(&server).await == 1)).await.unwrap();
}

#[tokio::test]
async fn a_reply_is_cut_at_the_byte() {
    let (server, proxy) = server_and_proxy().await;
    server.command(&["SET", "k", "0123456789"]).await.unwrap();
    let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.cut_after(Direction::Replies, 7);
    connection.write_all(b"GET k\r\n").await.unwrap();
    let mut got = Vec::new();
    connection.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"$10\r\n01");
}

#[tokio::test]
async fn a_swallowed_reply_never_comes_and_nor_does_one_after_it() {
    let (server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    proxy.swallow(Direction::Replies, true);
    assert!(timeout(LONG_ENOUGH, connection.command(&["INCR", "k"])).await.is_err());
    assert_eq!(effects(&server).await, 1);
    proxy.heal();
    assert!(timeout(LONG_ENOUGH, connection.command(&["INCR", "k"])).await.is_err());
    assert_eq!(client(&proxy).await.command(&["INCR", "k"]).await.unwrap().integer(), Some(3));
}

#[tokio::test]
async fn a_swallowed_command_does_not_run() {
    let (server, proxy) = server_and_proxy().await;
    proxy.swallow(Direction::Commands, true);
    let mut connection = client(&proxy).await;
    assert!(timeout(LONG_ENOUGH, connection.command(&["INCR", "k"])).await.is_err());
    assert_eq!(effects(&server).await, 0);
}

#[tokio::test]
async fn a_held_reply_comes_when_it_is_released() {
    let (server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    proxy.hold(Direction::Replies);
    let mut command = std::pin::pin!(connection.command(&["INCR", "k"]));
    let sent = proxy.until("the command to pass", |traffic| traffic.count("INCR") == 1);
    tokio::select! {
        outcome = &mut command => panic!("{outcome:?}"),
        sent = sent => sent.unwrap(),
    }
    assert!(timeout(LONG_ENOUGH, &mut command).await.is_err());
    assert_eq!((effects(&server).await, proxy.traffic().replies), (1, 0));
    proxy.release(Direction::Replies);
    assert_eq!(command.await.unwrap().integer(), Some(1));
}

#[tokio::test]
async fn a_delay_is_kept_and_can_be_called_off() {
    let (_server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    proxy.delay(Direction::Replies, LONG_ENOUGH);
    let sent = Instant::now();
    connection.command(&["PING"]).await.unwrap();
    assert!(sent.elapsed() >= LONG_ENOUGH);
    proxy.delay(Direction::Replies, Duration::from_secs(3600));
    let mut command = std::pin::pin!(connection.command(&["PING"]));
    assert!(timeout(LONG_ENOUGH, &mut command).await.is_err());
    proxy.heal();
    assert_eq!(command.await.unwrap().text(), "PONG");
}

#[tokio::test]
async fn connections_can_be_closed_and_new_ones_refused() {
    let (server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    connection.command(&["PING"]).await.unwrap();
    proxy.refuse(true);
    connection.command(&["PING"]).await.unwrap();
    proxy.close_all();
    assert!(connection.command(&["INCR", "k"]).await.is_err());
    // The system may take the connection before the proxy closes it.
    assert!(async { Connection::open(proxy.address()).await?.command(&["INCR", "k"]).await }.await.is_err());
    proxy.heal();
    assert_eq!(client(&proxy).await.command(&["INCR", "k"]).await.unwrap().integer(), Some(1));
    assert_eq!(effects(&server).await, 1);
}

#[tokio::test]
async fn a_client_that_leaves_is_gone_for_the_server_too() {
    let (server, proxy) = server_and_proxy().await;
    let mut connection = client(&proxy).await;
    connection.command(&["PING"]).await.unwrap();
    drop(connection);
    // The one that asks is a client too.
    until("the client to be gone", async || Ok(server.info("connected_clients").await? == "1")).await.unwrap();
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_port_and_its_connections() {
    let (_server, proxy) = server_and_proxy().await;
    let address = proxy.address();
    let mut connection = client(&proxy).await;
    connection.command(&["PING"]).await.unwrap();
    drop(proxy);
    assert!(connection.command(&["PING"]).await.is_err());
    until("the port to be closed", async || Ok(TcpStream::connect(address).await.is_err())).await.unwrap();
}
