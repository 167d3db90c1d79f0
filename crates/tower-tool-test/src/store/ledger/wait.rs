use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tower_tool_core::store::{Record, State, Topic};

use super::PARTS;
use crate::record;
use crate::store::LedgerFixture;
use crate::store::handle::{Handle, ask, at, breathe, joined, open};

/// How late a wake-up may be, on a machine that is busy with much else.
const SOON: Duration = Duration::from_secs(5);

/// Waits until the topic is elsewhere. It may be woken early, as often as it likes.
async fn moved(store: &Handle, topic: Topic<'_>, since: u64) -> u64 {
    loop {
        match store.store().changed(topic, since).await {
            Ok(now) if now != since => return now,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => panic!("changed failed: {error}: {error:?}"),
        }
    }
}

async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match timeout(SOON, wait).await {
        Ok(woken) => woken,
        Err(late) => panic!("{what} was not woken within {} s: {late}", SOON.as_secs()),
    }
}

/// What a waiter that waits on each handle before the change is told of it.
async fn told<T>(stores: &[Handle; 2], topic: Topic<'_>, what: &str, change: impl Future<Output = T>) -> (u64, T) {
    let [one, other] = stores;
    let since = at(one, topic).await;
    let mut waiting = pin!(async { tokio::join!(moved(one, topic, since), moved(other, topic, since)) });
    if let Ok(told) = timeout(Duration::from_millis(20), &mut waiting).await {
        panic!("before {what}, waiters at {since} were told {told:?}");
    }
    let changed = change.await;
    let (first, second) = soon(&format!("who waits for {what}"), waiting).await;
    assert_eq!(first, second, "two handles tell of {what} differently");
    (first, changed)
}

/// Asked with a place where the topic is not, ahead of it or behind, a store answers at once with where it is: a change between
/// a look and a wait is not missed.
pub async fn asked_with_where_it_is_not_it_answers_at_once(fixture: &impl LedgerFixture) {
    let stores = [open(fixture).await, open(fixture).await];
    let [one, other] = &stores;
    let key = record::key(PARTS, 1);
    let [tenant, ..] = PARTS;
    let expect = async |revision: u64| {
        for store in &stores {
            for since in [0, 1, revision.wrapping_sub(1), revision + 1, u64::MAX] {
                if since != revision {
                    let now = soon("who asks from elsewhere", store.store().changed(Topic::Record(&key), since)).await;
                    assert_eq!(now.ok(), Some(revision), "where the record is, asked from {since}");
                }
            }
        }
    };
    expect(0).await;
    let first = one.add(record::asked(PARTS, 1, one.now())).await;
    expect(first.revision).await;
    let second = other.become_(&first, State::Denied).await;
    expect(second.revision).await;
    one.remove(&second).await;
    expect(0).await;

    let cards = at(one, Topic::Cards(tenant)).await;
    for since in [0, cards - 1, cards + 1] {
        let now = soon("who asks from elsewhere", other.store().changed(Topic::Cards(tenant), since)).await;
        assert_eq!(now.ok(), Some(cards), "where the cards are, asked from {since}");
    }
}

/// Whoever waits for a record is woken when it comes to be, changes or goes, through whichever handle, and is told where it is.
pub async fn whoever_waits_for_a_record_is_woken_by_its_every_change(fixture: &impl LedgerFixture) {
    let stores = [open(fixture).await, open(fixture).await];
    for (n, writer) in (0..).zip(&stores) {
        let key = record::key(PARTS, n);
        let topic = Topic::Record(&key);
        let first = record::of(PARTS, n, writer.now());
        let (now, first) = told(&stores, topic, "a record that comes to be", writer.add(first)).await;
        assert_eq!(now, first.revision);
        let mut current = first;
        for state in [record::running(writer.now()), record::completed(json!(1), writer.now())] {
            let (now, next) = told(&stores, topic, "a change of a record", writer.become_(&current, state)).await;
            assert_eq!(now, next.revision);
            current = next;
        }
        let (now, ()) = told(&stores, topic, "a removal", writer.remove(&current)).await;
        assert_eq!(now, 0);
    }
}

/// The cards of a tenant go on, and wake who waits for them, with every change of a record that has a card: opened, decided, used,
/// closed, gone.
pub async fn the_cards_of_a_tenant_move_with_every_record_that_has_one(fixture: &impl LedgerFixture) {
    let stores = [open(fixture).await, open(fixture).await];
    for (n, writer) in (0..).zip(stores.iter().cycle().take(4)) {
        let tenant = if n < 2 { "acme" } else { "{ac:me}/*\n%" };
        let parts = [tenant, "user_42", "session-1", "pay"];
        let topic = Topic::Cards(tenant);
        let now = writer.now();
        let mut last = at(writer, topic).await;
        let mut went_on = |to: u64, what: &str| {
            assert!(to > last, "with {what} the cards went from {last} to {to}");
            last = to;
        };
        let (to, asked) =
            told(&stores, topic, "a card that was opened", writer.add(record::asked(parts, n, now))).await;
        went_on(to, "a card that was opened");
        let mut current = asked;
        for state in
            [State::Approved, record::running(now), record::completed(json!(1), now), State::Denied, State::Pending]
        {
            let what = format!("a card whose record became {}", state.as_str());
            let (to, next) = told(&stores, topic, &what, writer.become_(&current, state)).await;
            went_on(to, &what);
            current = next;
        }
        let (to, ()) = told(&stores, topic, "a card that is gone", writer.remove(&current)).await;
        went_on(to, "a card that is gone");
    }
}

/// All who wait for one thing are woken by one change, and those who went away before harm nobody.
pub async fn everyone_who_waits_is_woken_and_who_left_harms_nobody(fixture: &impl LedgerFixture) {
    const WAITERS: usize = 60;
    let stores = [open(fixture).await, open(fixture).await];
    let [one, other] = &stores;
    let [tenant, ..] = PARTS;
    let first = one.add(record::asked(PARTS, 1, one.now())).await;
    let cards = at(one, Topic::Cards(tenant)).await;
    let mut waiters = JoinSet::new();
    for (n, store) in stores.iter().cycle().take(WAITERS).enumerate() {
        let (store, key, since) = (store.clone(), first.key.clone(), first.revision);
        waiters.spawn(async move {
            match n % 4 {
                // Two of four go away, at their first wait or later.
                0 => drop(timeout(Duration::ZERO, moved(&store, Topic::Record(&key), since)).await),
                1 => drop(timeout(Duration::from_millis(9), moved(&store, Topic::Cards(&key.tenant), cards)).await),
                2 => drop(moved(&store, Topic::Record(&key), since).await),
                _ => drop(moved(&store, Topic::Cards(&key.tenant), cards).await),
            }
        });
    }
    for _ in 0..4 {
        breathe().await;
    }
    other.become_(&first, State::Denied).await;
    soon("one of many who wait", joined(waiters)).await;
}

/// Whoever waits for a thing that changes once is woken although others change all the time and many more are waited for.
pub async fn a_busy_topic_starves_no_other(fixture: &impl LedgerFixture) {
    const IDLE: u64 = 100;
    let stores = [open(fixture).await, open(fixture).await];
    let [one, other] = &stores;
    let busy = other.add(record::asked(["busy", "user_42", "session-1", "pay"], 1, one.now())).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    {
        let (store, stop, mut current) = (other.clone(), Arc::clone(&stop), busy.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                current = store.become_(&current, State::Pending).await;
                sleep_until(Instant::now() + Duration::from_millis(1)).await;
            }
        });
    }
    // Followers of the busy one, and many who wait for what never comes.
    let mut others = JoinSet::new();
    for store in &stores {
        let (store, key) = (store.clone(), busy.key.clone());
        others.spawn(async move {
            let mut since = 0;
            loop {
                since = moved(&store, Topic::Record(&key), since).await;
            }
        });
    }
    for n in 0..IDLE {
        let (store, key) = (one.clone(), record::key(PARTS, 1_000 + n));
        others.spawn(async move {
            if n % 2 == 0 {
                moved(&store, Topic::Record(&key), 0).await;
            } else {
                let tenant = format!("idle-{n}");
                let since = at(&store, Topic::Cards(&tenant)).await;
                moved(&store, Topic::Cards(&tenant), since).await;
            }
        });
    }
    let [tenant, ..] = PARTS;
    let quiet = one.add(record::asked(PARTS, 1, one.now())).await;
    let (_, denied) =
        told(&stores, Topic::Record(&quiet.key), "a quiet record", one.become_(&quiet, State::Denied)).await;
    let (_, removed) = told(&stores, Topic::Cards(tenant), "quiet cards", other.remove(&denied)).await;
    let () = removed;
    stop.store(true, Ordering::Relaxed);
    joined(tasks).await;
    others.shutdown().await;
}

/// Whoever takes every change as it comes, while others make them through any handle, misses none: neither one that is made while
/// it turns from one to the next, nor what the store shows of it once it was told.
pub async fn no_wake_up_is_lost_in_a_race(fixture: &impl LedgerFixture) {
    const CHANGES: u64 = 250;
    const FOLLOWERS: usize = 6;
    let stores = [open(fixture).await, open(fixture).await];
    let [one, ..] = &stores;
    let mut current = one.add(record::asked(PARTS, 1, one.now())).await;
    let last = current.revision + CHANGES;
    let seen: Arc<[AtomicU64; FOLLOWERS]> = Arc::default();
    let mut followers = JoinSet::new();
    for (n, store) in stores.iter().cycle().take(FOLLOWERS).enumerate() {
        let (store, key, seen) = (store.clone(), current.key.clone(), Arc::clone(&seen));
        followers.spawn(async move {
            let topic = if n < FOLLOWERS / 2 { Topic::Record(&key) } else { Topic::Cards(&key.tenant) };
            let (mut since, mut revision) = (0, 0);
            while revision < last {
                since = moved(&store, topic, since).await;
                revision = store.get(&key).await.map_or(0, |record| record.revision);
                if let Some(seen) = seen.get(n) {
                    seen.store(revision, Ordering::Relaxed);
                }
            }
        });
    }
    for (n, store) in (0..CHANGES).zip(stores.iter().cycle()) {
        current = store.become_(&current, State::Pending).await;
        // Some changes come at once, others just when all are about to wait again, or a little later.
        if n % 4 == 0 {
            continue;
        }
        let all_have_seen_it = async {
            for look in 0.. {
                if seen.iter().all(|seen| seen.load(Ordering::Relaxed) >= current.revision) {
                    break;
                }
                if look < 50 {
                    tokio::task::yield_now().await;
                } else {
                    breathe().await;
                }
            }
        };
        soon("one who takes every change", all_have_seen_it).await;
        for _ in 0..n % 7 {
            tokio::task::yield_now().await;
        }
    }
    soon("one who takes every change", joined(followers)).await;
}

/// Whoever waits for something that does not happen waits, and is not told of nothing over and over.
pub async fn who_waits_for_nothing_waits(fixture: &impl LedgerFixture) {
    /// Between two looks that a store may have its waiters make.
    const AT_LEAST: Duration = Duration::from_millis(10);
    let store = open(fixture).await;
    let [tenant, ..] = PARTS;
    let written: Record = store.add(record::asked(PARTS, 1, store.now())).await;
    let absent = record::key(PARTS, 2);
    for topic in [Topic::Record(&written.key), Topic::Record(&absent), Topic::Cards(tenant), Topic::Cards("nobody")] {
        let since = at(&store, topic).await;
        let begun = Instant::now();
        let mut told = 0;
        while let Some(left) = Duration::from_millis(300).checked_sub(begun.elapsed()) {
            match timeout(left, ask("changed", store.store().changed(topic, since))).await {
                Ok(now) => assert_eq!(now, since, "where {topic:?} is, which did not change"),
                Err(_) => break,
            }
            told += 1;
            assert!(told <= 300 / AT_LEAST.as_millis(), "told of nothing {told} times in {:?}", begun.elapsed());
            tokio::task::yield_now().await;
        }
    }
}
