//! Starting and stopping.

use std::net::Ipv4Addr;

use serde_json::Value;
use support_desk::app;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::{ALICE, Desk, config};

#[test]
fn a_tool_that_does_not_exist_cannot_be_confirmed() {
    let error = app(&config(&[], &[("CONFIRM_TOOLS", "create_ticket,create_tiket")])).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("`create_tiket`") && message.contains("create_ticket"), "{message}");
}

#[test]
fn an_audit_log_that_cannot_be_opened_is_told_at_the_start() {
    let error = app(&config(&["--audit-log", "/nowhere/at/all.jsonl"], &[])).unwrap_err();
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
    let desk = app(&config(&[], &[])).unwrap();
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
