use std::sync::Arc;
use std::task::{Context, Waker};

use serde_json::json;
use tower_tool_core::store::{State, Swap};

use super::PARTS;
use crate::record;
use crate::store::LedgerFixture;
use crate::store::handle::{assert_kept, assert_same, breathe, open};

/// What was never written is `None` to every question, and no error.
pub async fn what_is_absent_is_none(fixture: &impl LedgerFixture) {
    let store = open(fixture).await;
    let [tenant, actor, scope, _] = PARTS;
    assert!(store.get(&record::key(PARTS, 1)).await.is_none());
    assert!(store.by_approval(tenant, record::approval_id()).await.is_none());
    assert!(store.by_execution(tenant, scope, record::execution_id()).await.is_none());
    assert!(store.pending(tenant, None, 10).await.is_empty());
    assert!(store.in_scope(tenant, actor, scope).await.is_empty());
    assert!(store.scan_all(10).await.is_empty());
    store.add(record::of(PARTS, 2, store.now())).await;
    assert!(store.get(&record::key(PARTS, 1)).await.is_none(), "of another intent");
}

/// Whoever comes second learns in the same step what the first wrote, so that claim or replay is one trip.
///
/// aws-powertools/powertools-lambda-typescript#2058: the record that a lost write hands back is the one to compare arguments with.
pub async fn the_first_claim_wins_and_the_second_is_given_it(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    for (n, state) in [record::running(now), record::completed(json!({ "n": 1 }), now)].into_iter().enumerate() {
        let mut first = record::of(PARTS, n as u64, now);
        first.state = state;
        let first = one.add(first).await;
        for store in [&one, &other] {
            let mut second = record::of(PARTS, n as u64, now);
            second.state = record::running(now);
            second.arguments_hash = tower_tool_core::Digest::from_bytes([9; 32]);
            let present = store.lose(&first.key, None, Some(second), "where there was a record").await;
            assert_kept(present, &first, "the record that won");
            assert_kept(store.get(&first.key).await, &first, "the record that won");
        }
    }
}

/// A swap compares the revision: with an older, a newer or none it is lost, changes nothing and gives the record that is there.
pub async fn a_swap_with_another_revision_is_lost_to_the_present_record(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let first = one.add(record::of(PARTS, 1, one.now())).await;
    let second = one.become_(&first, State::Denied).await;
    let newer = || record::next(&record::next(&second, State::Denied), State::Expired);
    for store in [&one, &other] {
        for expected in [None, Some(0), Some(first.revision), Some(second.revision + 1), Some(u64::MAX)] {
            for next in [Some(newer()), None] {
                if (expected, &next) == (None, &None) {
                    continue;
                }
                let why = format!("with {expected:?} where {} was right", second.revision);
                let present = store.lose(&second.key, expected, next, &why).await;
                assert_kept(present, &second, "the record that a lost swap gives");
                assert_kept(store.get(&second.key).await, &second, "the record after a lost swap");
            }
        }
        let absent = record::of(PARTS, 2, store.now());
        for next in [Some(absent.clone()), None] {
            let present = store.lose(&absent.key, Some(absent.revision), next, "where there was nothing").await;
            assert!(present.is_none(), "a lost swap gives a record where there is none");
            assert!(store.get(&absent.key).await.is_none(), "a lost swap wrote something");
        }
    }
    let third = other.become_(&second, State::Expired).await;
    assert_kept(one.get(&third.key).await, &third, "the record that another handle wrote");
}

/// A removal needs the revision too, leaves nothing behind, and what is not there cannot be removed.
pub async fn what_is_removed_is_gone(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let [tenant, actor, scope, _] = PARTS;
    let mut written = record::asked(PARTS, 1, one.now());
    written.released = vec![record::execution_id()];
    let written = one.add(written).await;
    one.remove(&written).await;
    for store in [&one, &other] {
        assert!(store.get(&written.key).await.is_none(), "it is still there");
        for id in written.approval_ids() {
            assert!(store.by_approval(tenant, id).await.is_none(), "it is found by its card");
        }
        for id in written.execution_ids() {
            assert!(store.by_execution(tenant, scope, id).await.is_none(), "it is found by its execution");
        }
        assert!(store.pending(tenant, None, 10).await.is_empty(), "its card is shown");
        assert!(store.in_scope(tenant, actor, scope).await.is_empty(), "its session has it");
        assert!(store.scan_all(10).await.is_empty(), "a scan shows it");
        let again = store.try_swap(&written.key, None, None).await;
        assert!(!matches!(again, Ok(Swap::Won(_))), "what is not there was removed");
    }
    // And may come to be again.
    let mut again = record::at(written.key.clone(), one.now());
    again.revision = written.revision + 1;
    let again = other.add(again).await;
    assert_kept(one.get(&again.key).await, &again, "a record where one was removed");
}

/// Whoever lost its claim to a later owner neither removes nor finishes the other's.
///
/// nexspence/nexspence#223, twentyhq/twenty#25661: a late release freed somebody else's lock.
pub async fn a_late_owner_changes_nothing(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    let first = one.add(record::of(PARTS, 1, now)).await;
    let first = one.become_(&first, record::running(now)).await;
    let mut taken = record::next(&first, record::running(now));
    taken.fence += 1;
    let taken = other.replace(&first, taken).await;
    for next in [
        None,
        Some(record::next(&first, record::completed(json!(1), now))),
        Some(record::next(&first, State::Released)),
    ] {
        let present = one.lose(&first.key, Some(first.revision), next, "by an owner that had lost its claim").await;
        assert_kept(present, &taken, "the claim of the later owner");
        assert_kept(other.get(&taken.key).await, &taken, "the claim of the later owner");
    }
    let third = record::next(&taken, record::running(now));
    let present = other.lose(&taken.key, None, Some(third), "beside an owner that runs").await;
    assert_kept(present, &taken, "the claim of the later owner");
    other.become_(&taken, record::completed(json!(2), now)).await;
}

/// Neighbouring revisions are different ones where a double or a signed integer cannot tell them apart any more.
pub async fn revisions_are_compared_to_the_last_bit(fixture: &impl LedgerFixture) {
    let store = open(fixture).await;
    for (n, revision) in
        [(1 << 53) + 1, (1 << 60) + 1, i64::MAX as u64, (1 << 63) + 1, u64::MAX - 2].into_iter().enumerate()
    {
        let mut written = record::of(PARTS, n as u64, store.now());
        written.revision = revision;
        let written = store.add(written).await;
        for expected in [revision - 1, revision + 1] {
            let next = record::next(&record::next(&written, State::Denied), State::Denied);
            let why = format!("with {expected} where {revision} was right");
            let present = store.lose(&written.key, Some(expected), Some(next), &why).await;
            assert_kept(present, &written, "a record with a great revision");
        }
        let next = store.become_(&written, State::Denied).await;
        assert_kept(store.get(&next.key).await, &next, "a record with a great revision");
    }
}

/// A swap whose caller goes away is made or not, but never later than the store's next answer about the record.
pub async fn a_swap_that_was_dropped_is_made_before_the_next_answer_or_never(fixture: &impl LedgerFixture) {
    let store = open(fixture).await;
    for n in 0..60_u64 {
        let written = store.add(record::of(PARTS, n, store.now())).await;
        let next = Arc::new(record::next(&written, State::Denied));
        let mut swap = Box::pin(store.store().swap(&written.key, Some(written.revision), Some(Arc::clone(&next))));
        // Dropped before it begins, at its first wait, or at a later one.
        for _ in 0..n % 4 {
            if swap.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                break;
            }
            if n % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
        drop(swap);
        let Some(answer) = store.get(&written.key).await else { panic!("a swap that was dropped removed the record") };
        assert_same(&answer, if answer.revision == written.revision { &written } else { &next }, "the record");
        for _ in 0..3 {
            breathe().await;
            assert_kept(store.get(&written.key).await, &answer, "the record, once the store had answered,");
        }
        // And so whoever has read it can go on from there.
        store.become_(&answer, State::Expired).await;
    }
}
