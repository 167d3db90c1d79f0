//! Starting and stopping.

use std::net::Ipv4Addr;

use axum::http::StatusCode;
use serde_json::Value;
use support_desk::app;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::{ALICE, Desk, config};

#[tokio::test]
async fn a_tool_that_does_not_exist_cannot_be_confirmed() {
    let config = config(&["--store", "memory:"], &[("CONFIRM_TOOLS", "create_ticket,create_tiket")]);
    let error = app(&config).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("`create_tiket`") && message.contains("create_ticket"), "{message}");
}

#[tokio::test]
async fn an_audit_log_that_cannot_be_opened_is_told_at_the_start() {
    let config = config(&["--store", "memory:", "--audit-log", "/nowhere/at/all.jsonl"], &[]);
    let error = app(&config).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all.jsonl"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_audit_log_has_a_line_for_every_record() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("audit-{}.jsonl", std::process::id()));
    let path_text = path.to_str().unwrap();
    let desk = Desk::with(&config(&["--audit-log", path_text], &[("CONFIRM_TOOLS", "")]));
    assert_eq!(desk.ticket("s1", &[]).await.status, 200);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|line| (line["point"].clone(), line["event"].clone())).collect();
    let expected = [("call", "opened"), ("execution", "opened"), ("execution", "closed"), ("call", "closed")];
    assert_eq!(told, expected.map(|(point, event)| (point.into(), event.into())));
}

#[tokio::test]
async fn it_stops_when_it_is_told_to_although_somebody_listens_to_its_events() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let desk = app(&config(&["--store", "memory:"], &[])).await.unwrap();
    let serving = desk.serve(listener, async { _ = stopped.await });
    let listening = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /approvals/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ALICE}\r\nTool-Scope: s1\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains("event: snapshot") {
            assert!(stream.read_buf(&mut heard).await.unwrap() > 0);
        }
        stop.send(()).unwrap();
        stream
    };
    let (unfinished, _still_open) = tokio::join!(serving, listening);
    assert_eq!(unfinished.unwrap(), 0);
}

/// A directory of this test alone.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_restart_keeps_the_window_and_the_ticket_counter() {
    let directory = Directory::new("restart");
    let config = config(&["--data-dir", directory.0.to_str().unwrap()], &[]);
    let start = async || Desk::of(app(&config).await.unwrap());
    let first = start().await.approved_ticket("s1").await;
    assert_eq!((first.status, &first.body["meta"]["replayed"]), (StatusCode::OK, &false.into()), "{}", first.text);

    let desk = start().await;
    let again = desk.ticket("s1", &[]).await;
    assert_eq!((again.status, &again.body["meta"]["replayed"]), (StatusCode::OK, &true.into()), "{}", again.text);
    assert_eq!(again.body["data"], first.body["data"]);
    assert_eq!(desk.opened(), 1);
    let second = desk.approved_ticket("s2").await;
    assert_ne!(second.body["data"]["ticket_id"], first.body["data"]["ticket_id"]);
    assert!(second.body["data"]["ticket_id"].as_str().unwrap().ends_with("-0002"), "{}", second.text);
}

/// A card that was open when the desk stopped is decided by the one that starts again.
#[tokio::test]
async fn a_restart_keeps_the_cards() {
    let directory = Directory::new("cards");
    let config = config(&["--data-dir", directory.0.to_str().unwrap()], &[]);
    let start = async || Desk::of(app(&config).await.unwrap());
    let card = start().await.ticket("s1", &[]).await.card();
    let desk = start().await;
    assert_eq!(desk.decide(ALICE, "s1", &card, true).await.status, StatusCode::OK);
    assert_eq!(desk.ticket("s1", &[]).await.status, StatusCode::OK);
    assert_eq!(start().await.opened(), 1);
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_had_is_told_at_the_start() {
    let directory = Directory::new("file");
    std::fs::write(&directory.0, "no directory").unwrap();
    let config = config(&["--data-dir", directory.0.to_str().unwrap()], &[]);
    let error = app(&config).await.unwrap_err();
    assert!(error.to_string().contains(directory.0.to_str().unwrap()), "{error}");
    std::fs::remove_file(&directory.0).unwrap();
}
