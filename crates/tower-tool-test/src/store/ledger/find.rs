use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use tower_tool_core::ApprovalId;
use tower_tool_core::store::{ClosedApproval, Record, State};

use super::PARTS;
use crate::record;
use crate::store::LedgerFixture;
use crate::store::handle::{Handle, assert_kept, assert_same, in_time, open};

/// An approval is found in every state of its record, while it is the present one and once it is closed, by its tenant alone.
pub async fn approvals_are_found_by_their_tenant_as_long_as_they_are_known(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    let [tenant, ..] = PARTS;
    let mut current = one.add(record::asked(PARTS, 1, now)).await;
    let mut ids: Vec<_> = current.approval_ids().collect();
    let states =
        [State::Denied, State::Approved, record::running(now), record::completed(json!(1), now), State::Pending];
    for state in states {
        let mut next = record::next(&current, state);
        if next.state == State::Pending
            && let Some(before) = next.approval.replace(record::card(&next.key, now))
        {
            next.closed.push(ClosedApproval { id: before.id, ended: "spent".into() });
        }
        current = one.replace(&current, next).await;
        ids.extend(current.approval_ids().next().filter(|id| !ids.contains(id)));
        for (store, id) in [&one, &other].into_iter().flat_map(|store| ids.iter().map(move |id| (store, *id))) {
            assert_kept(store.by_approval(tenant, id).await, &current, "the record by an approval that it knows");
            for foreign in ["", "acm", "acme2", "ACME", "user_42"] {
                assert!(store.by_approval(foreign, id).await.is_none(), "another tenant finds the approval");
            }
            assert!(
                store.by_approval(tenant, record::approval_id()).await.is_none(),
                "an id that nobody gave is found"
            );
        }
    }
    assert_eq!(ids.len(), 2, "the present card and the one before");
}

/// An execution is found in every state of its record, while it is the present one and once it was released, by its tenant's session
/// alone.
pub async fn executions_are_found_by_their_session_as_long_as_they_are_known(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    let [tenant, _, scope, _] = PARTS;
    let mut current = one.add(record::of(PARTS, 1, now)).await;
    let mut ids = Vec::new();
    let states = [
        record::running(now),
        State::Released,
        record::running(now),
        State::Released,
        record::unknown(now),
        record::failed(),
        record::completed(json!(1), now),
    ];
    for state in states {
        let mut next = record::next(&current, state);
        next.released.extend(current.state.execution());
        current = one.replace(&current, next).await;
        ids.extend(current.state.execution());
        for (store, id) in [&one, &other].into_iter().flat_map(|store| ids.iter().map(move |id| (store, *id))) {
            let found = store.by_execution(tenant, scope, id).await;
            assert_kept(found, &current, "the record by an execution that it knows");
            for (tenant, scope) in [("other", scope), (tenant, "session-2"), (tenant, ""), ("", scope), (scope, tenant)]
            {
                assert!(store.by_execution(tenant, scope, id).await.is_none(), "another session finds the execution");
            }
            let nobodys = store.by_execution(tenant, scope, record::execution_id()).await;
            assert!(nobodys.is_none(), "an id that nobody gave is found");
        }
    }
    assert_eq!(ids.len(), 5, "every execution");
}

/// Once a record has an id no more, nothing is found by it; what the record still has is.
pub async fn ids_that_a_record_has_no_more_are_not_found(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    let [tenant, _, scope, _] = PARTS;
    let mut first = record::asked(PARTS, 1, now);
    first.closed = [1, 2].map(|_| ClosedApproval { id: record::approval_id(), ended: "denied".into() }).into();
    first.released = vec![record::execution_id(), record::execution_id()];
    first.state = record::running(now);
    let first = one.add(first).await;
    for step in 0..3 {
        let mut next = record::next(&first, record::running(now));
        next.revision += step;
        match step {
            // All are other ones,
            0 => {
                next.approval = Some(record::card(&next.key, now));
                next.closed = vec![ClosedApproval { id: record::approval_id(), ended: "expired".into() }];
                next.released = vec![record::execution_id()];
            }
            // some are the same,
            1 => {
                next.closed.truncate(1);
                next.released.truncate(1);
            }
            // there are none.
            _ => {
                (next.approval, next.state) = (None, State::Released);
                next.closed.clear();
                next.released.clear();
            }
        }
        let Some(current) = one.get(&first.key).await else { panic!("the record is gone") };
        let next = one.replace(&current, next).await;
        for store in [&one, &other] {
            for id in current.approval_ids().chain(first.approval_ids()) {
                let found = store.by_approval(tenant, id).await;
                assert_found_as_known(
                    found.as_deref(),
                    &next,
                    next.approval_ids().any(|known| known == id),
                    "approval",
                );
            }
            for id in current.execution_ids().chain(first.execution_ids()) {
                let found = store.by_execution(tenant, scope, id).await;
                assert_found_as_known(
                    found.as_deref(),
                    &next,
                    next.execution_ids().any(|known| known == id),
                    "execution",
                );
            }
        }
    }
}

#[track_caller]
fn assert_found_as_known(found: Option<&Record>, record: &Record, known: bool, by: &str) {
    match found {
        Some(found) if known => assert_same(found, record, &format!("the record by {by}")),
        None if !known => {}
        Some(_) => panic!("an {by} that the record has no more is found"),
        None => panic!("an {by} that the record has is not found"),
    }
}

async fn page(store: &Handle, tenant: &str, after: Option<ApprovalId>, limit: usize) -> Vec<ApprovalId> {
    let records = store.pending(tenant, after, limit).await;
    assert!(records.len() <= limit, "{} cards where {limit} were asked for", records.len());
    let of = |record: &Record| match (&record.state, &record.approval) {
        (State::Pending, Some(card)) => card.id,
        _ => panic!("a record without a pending card: {record:?}"),
    };
    records.iter().map(|record| of(record)).collect()
}

/// Pending cards come oldest first, whatever order they were written in, each once, in pages of any size.
pub async fn pending_cards_come_oldest_first_and_page_by_page(fixture: &impl LedgerFixture) {
    const CARDS: u64 = 23;
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    let [tenant, ..] = PARTS;
    let mut opened = BTreeMap::new();
    for n in 0..CARDS {
        for parts in [PARTS, ["other", "user_42", "session-1", "pay"]] {
            // Neither in the order of their time nor of their names; some at once.
            let at = now + Duration::from_millis(n * 7 % CARDS / 2);
            let mut written = record::asked(parts, n, now);
            written.approval = Some(record::card(&written.key, at));
            let written = one.add(written).await;
            opened.extend(written.approval.filter(|_| parts == PARTS).map(|card| (card.id, card.created_at)));
        }
        let mut decided = record::asked(PARTS, 100 + n, now);
        decided.state = [State::Approved, State::Denied, State::Expired, record::running(now)]
            .into_iter()
            .nth(usize::try_from(n).unwrap_or_default() % 4)
            .unwrap_or(State::Cancelled);
        one.add(decided).await;
    }
    for (store, limit) in
        [(&one, usize::MAX), (&other, 1_000), (&other, 1), (&one, 5), (&other, 23), (&one, usize::MAX / 2)]
    {
        let mut all = Vec::new();
        loop {
            let next = page(store, tenant, all.last().copied(), limit).await;
            let last = next.len() < limit;
            all.extend(next);
            assert!(all.len() <= opened.len(), "more cards than there are, in pages of {limit}");
            if last {
                break;
            }
        }
        let found: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(found, opened.keys().copied().collect(), "cards in pages of {limit}");
        let times: Vec<_> = all.iter().filter_map(|id| opened.get(id)).collect();
        assert!(times.is_sorted(), "not oldest first, in pages of {limit}: {times:?}");
    }
    assert!(page(&one, "nobody", None, 5).await.is_empty());
}

/// A card that was decided while somebody leafed through them is not listed any more, and is still a place to go on from; one
/// that is opened anew is.
pub async fn a_card_that_was_decided_is_a_place_to_go_on_from(fixture: &impl LedgerFixture) {
    let (one, other) = (open(fixture).await, open(fixture).await);
    let now = one.now();
    let [tenant, ..] = PARTS;
    let mut records = Vec::new();
    for n in 0..6 {
        let mut written = record::asked(PARTS, n, now);
        written.approval = Some(record::card(&written.key, now + Duration::from_millis(n)));
        records.push(one.add(written).await);
    }
    let cards: Vec<_> = records.iter().flat_map(Record::approval_ids).collect();
    let first = page(&one, tenant, None, 3).await;
    assert_eq!(Some(&*first), cards.get(..3), "the first page");
    let (Some(third), Some(&after)) = (records.get(2), first.last()) else { panic!("three cards were just seen") };
    let mut decided = third.clone();
    for state in [State::Denied, State::Approved, record::running(now), record::completed(json!(1), now)] {
        decided = other.become_(&decided, state).await;
        for store in [&one, &other] {
            let rest = page(store, tenant, Some(after), usize::MAX).await;
            assert_eq!(Some(&*rest), cards.get(3..), "the cards after one that was decided");
            assert!(!page(store, tenant, None, usize::MAX).await.contains(&after), "a decided card is pending");
        }
    }
    let mut again = record::next(&decided, State::Pending);
    again.approval = Some(record::card(&again.key, now + Duration::from_millis(99)));
    let again = other.replace(&decided, again).await;
    let all = page(&one, tenant, None, usize::MAX).await;
    assert_eq!(all.len(), 6, "a card that was opened anew is one of six");
    assert_eq!(all.last().copied(), again.approval_ids().next(), "a card that was opened last comes last");
}

/// A session has its records, each once, through all their changes, as long as they are there, however many they are.
pub async fn a_scope_has_its_records_as_long_as_they_are_there(fixture: &impl LedgerFixture) {
    const RECORDS: u64 = 150;
    let (one, other) = (open(fixture).await, open(fixture).await);
    let [tenant, actor, scope, _] = PARTS;
    let now = one.now();
    let mut there = BTreeSet::new();
    for n in 0..RECORDS {
        let parts = [tenant, actor, scope, if n % 2 == 0 { "pay" } else { "refund" }];
        let written = one.add(record::of(parts, n, now)).await;
        match n % 3 {
            0 => {
                one.remove(&written).await;
                continue;
            }
            1 => {
                let running = one.become_(&written, record::running(now)).await;
                one.become_(&running, record::completed(json!(n), now)).await;
            }
            _ => {}
        }
        there.insert(written.key);
    }
    for store in [&one, &other] {
        let found = store.in_scope(tenant, actor, scope).await;
        assert_eq!(found, there.iter().cloned().collect::<Vec<_>>(), "the keys of a session");
        for (tenant, actor, scope) in
            [("other", actor, scope), (tenant, "other", scope), (tenant, actor, "other"), (actor, tenant, scope)]
        {
            assert!(store.in_scope(tenant, actor, scope).await.is_empty(), "another session has keys");
        }
    }
}

/// A scan gives every record that does not change meanwhile exactly once, whatever becomes of the others, through any handle, and
/// comes to its end.
pub async fn a_scan_gives_what_does_not_change_once(fixture: &impl LedgerFixture) {
    const STILL: u64 = 120;
    const LIMIT: usize = 7;
    let handles = [open(fixture).await, open(fixture).await];
    let [one, ..] = &handles;
    let now = one.now();
    let mut still = BTreeMap::new();
    let mut moving = Vec::new();
    for n in 0..STILL {
        let (tenant, scope) = (format!("tenant-{}", n % 3), format!("session-{}", n % 11));
        let record = one.add(record::asked([&tenant, "user_42", &scope, "pay"], n, now)).await;
        still.insert(record.key.clone(), record);
        let parts = [&*tenant, "user_42", "moving", "pay"];
        if n % 2 == 0 {
            moving.push(one.add(record::of(parts, n, now)).await);
        }
    }
    let mut seen = BTreeMap::<_, u32>::new();
    let mut after: Option<String> = None;
    for (pages, store) in (1_u64..).zip(handles.iter().cycle()) {
        let page = store.scan(after.as_deref(), LIMIT).await;
        assert!(
            page.records.len() < still.len() / 2,
            "{} records where about {LIMIT} were asked for",
            page.records.len()
        );
        for found in &page.records {
            if let Some(written) = still.get(&found.key) {
                assert_same(found, written, "the record that a scan gives");
                *seen.entry(found.key.clone()).or_default() += 1;
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
        assert!(pages < 4 * STILL, "a scan does not come to its end");
        // One changes, one goes, one comes.
        if let Some(record) = moving.pop() {
            moving.insert(0, store.become_(&record, State::Denied).await);
        }
        if pages % 2 == 0
            && let Some(record) = moving.pop()
        {
            store.remove(&record).await;
            let [tenant, actor, scope, _] = PARTS;
            store.add(record::of([tenant, actor, scope, "came later"], pages, now)).await;
        }
    }
    for (key, record) in &still {
        let times = seen.get(key).copied().unwrap_or_default();
        assert_eq!(times, 1, "times that a scan gave a record that did not change: {record:?}");
    }
}

/// A place to go on from that the store never gave is an error or some page. It does no harm.
pub async fn a_cursor_that_nobody_gave_does_no_harm(fixture: &impl LedgerFixture) {
    let store = open(fixture).await;
    let [tenant, ..] = PARTS;
    let written = store.add(record::asked(PARTS, 1, store.now())).await;
    let digest = written.key.digest.to_string();
    let long = "9".repeat(10_000);
    for cursor in
        ["", "0", "-1", "18446744073709551616", "null", "'; DROP TABLE records; --", "\0", "🦀", &digest, &long]
    {
        // An error is an answer.
        drop(in_time("scan", store.store().scan(Some(cursor), 5)).await);
    }
    drop(in_time("pending", store.store().pending(tenant, Some(record::approval_id()), 5)).await);
    assert_kept(store.get(&written.key).await, &written, "the record");
    assert_eq!(store.scan_all(5).await.len(), 1, "so many records were written");
    assert_eq!(store.pending(tenant, None, 5).await.len(), 1, "so many cards were opened");
}
