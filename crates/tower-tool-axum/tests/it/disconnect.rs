use futures_util::FutureExt as _;

use crate::setup::{BOB, Setup, decision, note, post, refund};

/// T-07, blockfrost/blockfrost-platform#183: the handler's future is dropped when the client goes, half way through the tool.
#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_stops_no_tool_with_effects_and_a_repeat_gets_the_result() {
    let setup = Setup::new();
    setup.note.hold();
    let mut request = Box::pin(setup.send(note("milk")));
    tokio::select! {
        _ = &mut request => unreachable!("the tool is held"),
        () = setup.note.until_started(1) => {}
    }
    drop(request);
    setup.note.release();
    setup.note.until(|counts| counts.finished == 1).await;
    let again = setup.send(note("milk")).await;
    again.assert_ok();
    assert_eq!(again.body["meta"]["replayed"], true);
    setup.note.assert_effects(1);
    assert_eq!(setup.note.counts().dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn so_it_is_with_an_approved_call() {
    let setup = Setup::new();
    let ticket = setup.ticket("A-1").await;
    setup.send(decision(BOB, &ticket, true)).await.assert_ok();
    setup.refund.hold();
    let mut request = Box::pin(setup.send(refund("A-1")));
    tokio::select! {
        _ = &mut request => unreachable!("the tool is held"),
        () = setup.refund.until_started(1) => {}
    }
    drop(request);
    setup.refund.release();
    setup.refund.until(|counts| counts.finished == 1).await;
    setup.send(refund("A-1")).await.assert_ok();
    setup.refund.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_at_once_and_its_repeat_are_one_call() {
    let setup = Setup::new();
    drop(setup.send(note("milk")));
    assert!(setup.send(note("milk")).now_or_never().is_none());
    setup.send(note("milk")).await.assert_ok();
    setup.note.assert_effects(1);
}

#[tokio::test(start_paused = true)]
async fn a_read_dies_with_its_caller() {
    let setup = Setup::new();
    setup.status.hold();
    let read = || post("/tools/get_status", serde_json::json!({}));
    let mut request = Box::pin(setup.send(read()));
    tokio::select! {
        _ = &mut request => unreachable!("the tool is held"),
        () = setup.status.until_started(1) => {}
    }
    drop(request);
    assert_eq!(setup.status.counts().dropped, 1);
}
