use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::task::JoinSet;
use tower_tool_core::{CallContext, IdempotencyKey, Principal, Scope};

use super::*;

/// What somebody wants under one key.
fn wanting(n: u32) -> Intent {
    let context = CallContext::new(Principal::new("acme", "alice"), Scope::new("session-1").unwrap());
    Intent::new("pay", &json!({ "n": n }), &context.with_key(IdempotencyKey::new("order-17").unwrap()))
}

fn key() -> RecordKey {
    wanting(1).record().clone()
}

fn execution() -> Execution {
    Execution::new(ExecutionId::random().unwrap(), "p", 1, 1)
}

fn lead(running: &Running) -> Lead {
    match running.enter(&wanting(1)) {
        Role::Lead(lead) => lead,
        role => panic!("somebody else leads: {role:?}"),
    }
}

fn join(running: &Running) -> watch::Receiver<Flight> {
    match running.enter(&wanting(1)) {
        Role::Join(flight, false) => flight,
        role => panic!("nobody leads: {role:?}"),
    }
}

/// I-38, moka-rs/moka#59
#[test]
fn nothing_is_left_however_the_lead_ends() {
    let running = Running::new(1);
    let settled = |flight: &watch::Receiver<Flight>| matches!(*flight.borrow(), Flight::Settled(..));

    let leading = lead(&running);
    let joined = [leading.join(), join(&running)];
    assert!(matches!(running.enter(&wanting(2)), Role::KeyReused));
    assert_eq!(running.len(), 1);
    assert!(leading.claimed(&key(), &execution()));
    leading.settle(execution(), Ok(ToolOutput::new(json!(1))));
    assert!(joined.iter().all(settled));
    assert_eq!(running.len(), 0);

    let leading = lead(&running);
    let joined = join(&running);
    drop(leading);
    assert!(matches!(*joined.borrow(), Flight::Look));
    assert_eq!(running.len(), 0);

    let leading = lead(&running);
    let joined = join(&running);
    let panicked = std::thread::scope(|scope| {
        let leading = scope.spawn(|| {
            leading.claimed(&key(), &execution());
            let _leading = leading;
            panic!("as told");
        });
        leading.join()
    });
    assert!(panicked.is_err());
    assert!(matches!(*joined.borrow(), Flight::Look));
    assert_eq!(running.len(), 0);
    drop(lead(&running));
}

/// I-43, huggingface/xet-core#449
#[test]
fn whoever_joins_is_answered_and_exactly_one_leads_at_a_time() {
    const THREADS: usize = 4;
    let running = Running::new(1);
    let leading = AtomicUsize::new(0);
    for _ in 0..1_000 {
        let start = Barrier::new(THREADS);
        let joined: Vec<_> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        match running.enter(&wanting(1)) {
                            Role::Join(flight, false) => Some(flight),
                            Role::Lead(lead) => {
                                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0);
                                lead.claimed(&key(), &execution());
                                leading.fetch_sub(1, Ordering::SeqCst);
                                lead.settle(execution(), Ok(ToolOutput::new(json!(1))));
                                None
                            }
                            role => panic!("the arguments are the same: {role:?}"),
                        }
                    })
                })
                .collect();
            callers.into_iter().filter_map(|caller| caller.join().unwrap()).collect()
        });
        assert!(joined.iter().all(|flight| matches!(*flight.borrow(), Flight::Settled(..))));
        assert_eq!(running.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_drain_nothing_begins_any_more() {
    let running = Running::new(2);
    let (first, permit) = (lead(&running), running.permit().unwrap());
    assert!(running.drain(Duration::from_secs(1)).await.is_empty(), "it was not claimed yet");
    assert!(!first.claimed(&key(), &execution()), "and now it is too late");
    drop((first, permit));
    assert!(running.permit().is_none());
    assert_eq!(running.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_is_about_to_be_claimed_too() {
    let running = Arc::new(Running::new(2));
    let (leading, permit) = (lead(&running), running.permit().unwrap());
    let mut draining = JoinSet::new();
    let its = Arc::clone(&running);
    draining.spawn(async move { its.drain(Duration::from_secs(10)).await });
    tokio::task::yield_now().await;
    assert!(running.permit().is_none(), "nothing new begins while it waits");
    assert!(leading.claimed(&key(), &execution()));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(draining.try_join_next().is_none());
    drop(permit);
    leading.settle(execution(), Ok(ToolOutput::new(json!(1))));
    assert!(draining.join_next().await.unwrap().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_what_did_not_end_in_time_every_time_it_is_asked() {
    let running = Running::new(2);
    let (leading, _permit) = (lead(&running), running.permit().unwrap());
    let execution = execution();
    assert!(leading.claimed(&key(), &execution));
    for _ in 0..2 {
        let before = tokio::time::Instant::now();
        let left = running.drain(Duration::from_secs(5)).await;
        let left: Vec<_> = left.into_iter().map(|left| (left.key, left.execution)).collect();
        assert_eq!(left, [(key(), execution.clone())]);
        assert_eq!(before.elapsed(), Duration::from_secs(5));
    }
    leading.settle(execution, Ok(ToolOutput::new(json!(1))));
    assert!(running.drain(Duration::ZERO).await.is_empty());
}
