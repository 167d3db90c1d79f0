//! One server: started, killed, paused, started again.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::timeout;
use tower_tool_tests::redis::{Connection, Options, RedisServer, programs, shared_url, until};

/// Long enough for a server that answers to have answered.
const LONG_ENOUGH: Duration = Duration::from_millis(300);

async fn get(server: &RedisServer, key: &str) -> String {
    server.command(&["GET", key]).await.unwrap().text()
}

#[tokio::test]
async fn every_program_starts_and_is_what_its_name_says() {
    let programs = programs().unwrap();
    for program in &programs {
        let server = RedisServer::start(Options::new().program(program)).await.unwrap();
        let (kind, version) = program.name().split_once('-').unwrap();
        assert_eq!(server.info(&format!("{kind}_version")).await.unwrap(), version);
        server.command(&["SET", "k", "v"]).await.unwrap();
        assert_eq!(get(&server, "k").await, "v");
    }
    let is_there = |wanted: &str| programs.iter().any(|program| program.name().starts_with(wanted));
    assert!(is_there("redis-") || is_there("valkey-"), "{programs:?}");
}

#[tokio::test]
async fn the_shared_server_answers() {
    let url = shared_url().unwrap();
    let address = url.strip_prefix("redis://").unwrap().parse().unwrap();
    let mut connection = Connection::open(address).await.unwrap();
    assert_eq!(connection.command(&["PING"]).await.unwrap().text(), "PONG");
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_kill_only_with_a_file() {
    for (options, survives) in [(Options::new(), ""), (Options::new().append_only(), "v")] {
        let mut server = RedisServer::start(options).await.unwrap();
        let (address, pid) = (server.address(), server.info("process_id").await.unwrap());
        server.command(&["SET", "k", "v"]).await.unwrap();
        server.kill();
        assert!(!server.is_running());
        assert!(server.command(&["PING"]).await.is_err());
        server.restart().await.unwrap();
        assert_eq!(server.address(), address);
        assert_ne!(server.info("process_id").await.unwrap(), pid);
        assert_eq!(get(&server, "k").await, survives);
    }
}

#[tokio::test]
async fn a_paused_server_takes_commands_and_answers_when_it_is_resumed() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let mut connection = server.connect().await.unwrap();
    server.pause().await.unwrap();
    assert!(server.is_paused());
    let mut command = std::pin::pin!(connection.command(&["INCR", "k"]));
    assert!(timeout(LONG_ENOUGH, &mut command).await.is_err());
    server.resume().unwrap();
    assert_eq!(command.await.unwrap().integer(), Some(1));
}

#[tokio::test]
async fn a_paused_server_can_be_killed() {
    let mut server = RedisServer::start(Options::new()).await.unwrap();
    server.pause().await.unwrap();
    server.kill();
    assert!(server.connect().await.is_err());
    server.restart().await.unwrap();
    assert!(!server.is_paused());
}

#[tokio::test]
async fn a_drop_leaves_neither_process_nor_directory() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let (address, directory) = (server.address(), server.directory().to_owned());
    assert!(directory.is_dir());
    drop(server);
    assert!(Connection::open(address).await.is_err());
    assert!(!directory.exists());
}

#[tokio::test]
async fn options_are_what_the_server_has() {
    let options =
        Options::new().config("maxmemory", "64mb").config("maxmemory-policy", "allkeys-lru").password("hunter2");
    let server = RedisServer::start(options.unix_socket()).await.unwrap();
    let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"]).await.unwrap();
    assert_eq!(policy.text(), "maxmemory-policy allkeys-lru");
    let mut stranger = Connection::open(server.address()).await.unwrap();
    assert!(stranger.command(&["GET", "k"]).await.unwrap_err().to_string().contains("NOAUTH"));
    assert!(server.url().starts_with("redis://:hunter2@127.0.0.1:"));
    let socket = server.socket().unwrap();
    assert!(tokio::net::UnixStream::connect(&socket).await.is_ok());
    assert_eq!(server.unix_url().unwrap(), format!("redis+unix://{}", socket.display()));
}

#[tokio::test]
async fn a_replica_has_what_its_master_has() {
    let master = RedisServer::start(Options::new().password("hunter2")).await.unwrap();
    master.command(&["SET", "k", "v"]).await.unwrap();
    let replica = RedisServer::start(Options::new().password("hunter2").replica_of(&master)).await.unwrap();
    replica.until_in_sync().await.unwrap();
    assert_eq!(get(&replica, "k").await, "v");
    master.command(&["SET", "k", "w"]).await.unwrap();
    until("the change to arrive", async || Ok(get(&replica, "k").await == "w")).await.unwrap();
    assert!(replica.command(&["SET", "k", "x"]).await.unwrap_err().to_string().contains("READONLY"));
}

#[tokio::test]
async fn a_server_that_refuses_its_options_says_why() {
    let error = RedisServer::start(Options::new().config("no-such-option", "1")).await.unwrap_err().to_string();
    assert!(error.contains("the server ended") && error.contains("no-such-option"), "{error}");
}

#[tokio::test]
async fn many_servers_start_at_once() {
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..12 {
        starting.spawn(RedisServer::start(Options::new()));
    }
    let mut ports: Vec<_> =
        starting.join_all().await.into_iter().map(|server| server.unwrap().address().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 12);
}

#[tokio::test]
async fn without_a_server_a_test_fails_and_says_what_to_do() {
    const CHILD: &str = "TOWER_TOOL_TESTS_HAS_NO_SERVER";
    if std::env::var_os(CHILD).is_some() {
        drop(RedisServer::start(Options::new()).await.unwrap());
        return;
    }
    let mut test = itself("redis::server::without_a_server_a_test_fails_and_says_what_to_do");
    let output = test.env(CHILD, "").env_remove("REDIS_SERVER").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("`REDIS_SERVER` is not set"), "{said}");
    assert!(said.contains("`cargo xtask test`"), "{said}");
}

/// This binary, to run one test of it in a process of its own.
fn itself(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]);
    command
}

/// A test that is killed runs no destructor.
#[tokio::test]
async fn a_server_ends_with_the_process_that_started_it() {
    const CHILD: &str = "TOWER_TOOL_TESTS_STARTS_AND_HANGS";
    if let Some(report) = std::env::var_os(CHILD) {
        let server = RedisServer::start(Options::new()).await.unwrap();
        fs::write(report, server.address().to_string()).unwrap();
        std::future::pending::<()>().await;
    }
    let report = std::env::temp_dir().join(format!("tower-tool-tests-{}", std::process::id()));
    let _ = fs::remove_file(&report);
    let mut test = itself("redis::server::a_server_ends_with_the_process_that_started_it");
    let mut child = test.env(CHILD, &report).stdout(Stdio::null()).spawn().unwrap();
    let mut address = None;
    until("the child to start a server", async || {
        address = fs::read_to_string(&report).ok().and_then(|text| text.parse().ok());
        Ok(address.is_some())
    })
    .await
    .unwrap();
    let address = address.unwrap();
    assert!(Connection::open(address).await.is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
    until("the server to be gone", async || Ok(Connection::open(address).await.is_err())).await.unwrap();
    let _ = fs::remove_file(&report);
    let left = format!("tower-tool-redis-{}-{}", child.id(), address.port());
    let _ = fs::remove_dir_all(std::env::temp_dir().join(left));
}
