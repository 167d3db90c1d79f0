use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower_tool_core::store::{Record, State, Swap};

use super::PARTS;
use crate::record;
use crate::store::LedgerFixture;
use crate::store::handle::{Handle, assert_kept, joined, open};

/// Of many that claim an intent at once, through several handles, one wins, and all others are given its claim.
///
/// idempot-dev/idempot-js#182: a write without a condition let the second claim overwrite the first, and both ran.
pub async fn of_claims_at_once_one_wins(fixture: &impl LedgerFixture) {
    const INTENTS: u64 = 200;
    let handles = [open(fixture).await, open(fixture).await, open(fixture).await, open(fixture).await];
    let start = Arc::new(Barrier::new(handles.len()));
    let mut claimants = JoinSet::new();
    for store in handles.clone() {
        let start = Arc::clone(&start);
        claimants.spawn(async move {
            let mut answers = Vec::new();
            for n in 0..INTENTS {
                let now = store.now();
                let mut claim = record::of(PARTS, n, now);
                claim.state = record::running(now);
                start.wait().await;
                answers.push((claim.clone(), store.swap(&claim.key.clone(), None, Some(claim)).await));
            }
            answers
        });
    }
    let answers = joined(claimants).await;
    for n in 0..INTENTS {
        let key = record::key(PARTS, n);
        let of_intent = || answers.iter().flatten().filter(|(claim, _)| claim.key == key);
        let winners: Vec<_> = of_intent().filter(|(_, swap)| matches!(swap, Swap::Won(_))).collect();
        let &[(winner, _)] = &*winners else { panic!("of 4 claims at once {} were won", winners.len()) };
        for (_, swap) in of_intent() {
            if let Swap::Lost(present) = swap {
                assert_kept(present.clone(), winner, "the claim that won");
            }
        }
        for store in &handles {
            assert_kept(store.get(&key).await, winner, "the claim that won");
        }
    }
}

/// Whoever swaps what it has read, again whenever somebody else was quicker, loses no change.
pub async fn no_change_is_lost_between_handles(fixture: &impl LedgerFixture) {
    const CHANGES: u64 = 60;
    let handles = [open(fixture).await, open(fixture).await, open(fixture).await];
    let [first, ..] = &handles;
    let written = first.add(record::of(PARTS, 1, first.now())).await;
    let mut writers = JoinSet::new();
    for store in handles.clone() {
        let mut current = written.clone();
        writers.spawn(async move {
            for _ in 0..CHANGES {
                current = counted(&store, current).await;
            }
        });
    }
    joined(writers).await;
    let Some(last) = first.get(&written.key).await else { panic!("the record is gone") };
    assert_eq!(last.fence, CHANGES * handles.len() as u64, "so many changes were acknowledged");
}

/// Adds one to what is there.
async fn counted(store: &Handle, mut current: Record) -> Record {
    loop {
        let mut next = record::next(&current, State::Released);
        next.fence += 1;
        match store.swap(&current.key, Some(current.revision), Some(next.clone())).await {
            Swap::Won(_) => return next,
            Swap::Lost(Some(present)) => current = Record::clone(&present),
            Swap::Lost(None) => panic!("the record is gone"),
        }
    }
}
