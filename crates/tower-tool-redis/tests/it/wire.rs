//! What goes over the wire, and what is kept under which names.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use tower_tool_core::store::{BucketKey, LedgerStore as _, Quota, QuotaStore as _, Record, RecordKey, State, Swap};
use tower_tool_redis::{RedisStore, Warning};
use tower_tool_test::record;
use tower_tool_tests::redis::{Options, Proxy, RedisServer, Value, programs};

use crate::{PARTS, begin_and_finish, claim, done, get, name_of, store_on, swap, win};

#[tokio::test]
async fn to_begin_to_finish_and_to_find_is_one_round_trip_each() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    begin_and_finish(&store, 1).await;
    let expect_one = |what: &str| {
        let traffic = proxy.traffic();
        assert_eq!((traffic.round_trips, traffic.commands), (1, vec!["EVALSHA".to_owned()]), "{what}");
        proxy.forget();
    };
    proxy.forget();
    let running = claim(&store, 2);
    win(&store, None, &running).await;
    expect_one("a claim");
    assert!(matches!(swap(&store, None, &running).await, Ok(Swap::Lost(Some(_)))));
    expect_one("a claim that is lost, with the record that won");
    let ended = done(&store, &running);
    win(&store, Some(&running), &ended).await;
    expect_one("an end");
    assert_eq!(get(&store, &running.key).await, Some(ended.clone()));
    expect_one("a look, with the result");
    assert!(matches!(swap(&store, None, &running).await, Ok(Swap::Lost(Some(there))) if *there == ended));
    expect_one("a replay");
    win(&store, None, &record::asked(PARTS, 3, store.now())).await;
    expect_one("a card");
    let quota = Quota::per_second(NonZeroU32::MIN);
    store.take(BucketKey::new("acme", ["a"]), quota).await.unwrap();
    proxy.forget();
    store.take(BucketKey::new("acme", ["a"]), quota).await.unwrap();
    expect_one("a call out of a bucket");
}

/// Processes of several versions share these names. If they change, so does what the docs say.
#[tokio::test]
async fn the_names_of_all_keys() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = store_on(&server).await;
    let done = begin_and_finish(&store, 1).await;
    win(&store, None, &record::asked(PARTS, 2, store.now())).await;
    store.take(BucketKey::new("acme", ["a"]), Quota::per_hour(NonZeroU32::MIN)).await.unwrap();
    let keys = server.command(&["KEYS", "*"]).await.unwrap();
    let short = |key: &str| match key.rsplit_once(':') {
        Some((before, digest)) if digest.len() == 64 => format!("{before}:<sha256>"),
        _ if key.starts_with("agent:quota:") => "agent:quota:{acme/<sha256>}".to_owned(),
        _ => key.to_owned(),
    };
    let Value::Array(keys) = keys else { panic!("no list of keys") };
    let names: BTreeSet<_> = keys.into_iter().map(|key| short(&key.text())).collect();
    let golden = [
        "agent:actor:{acme/session-1}:user_42",
        "agent:body:{acme/session-1}:user_42",
        "agent:cards-at:{acme}",
        "agent:cards-end:{acme}",
        "agent:cards:{acme}",
        "agent:ends:{acme/session-1}",
        "agent:exec:{acme/session-1}",
        "agent:idem:{acme/session-1}:refund:<sha256>",
        "agent:order:{acme/session-1}:user_42",
        "agent:pending:{acme}",
        "agent:quota:{acme/<sha256>}",
    ];
    assert_eq!(names, golden.map(str::to_owned).into());
    let kept = server.command(&["HGET", &name_of(&done.key), "r"]).await.unwrap().text();
    assert_eq!(kept, done.revision.to_string());
}

/// Nothing that somebody may call themselves reaches into what is somebody else's.
#[tokio::test]
async fn hostile_names_collide_with_nothing() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = store_on(&server).await;
    let names = [
        "",
        "a",
        "a/b",
        "a}:b",
        "{a}",
        "a:b",
        "%",
        "%2F",
        "*",
        "[a-z]*",
        "\r\nFLUSHALL\r\n",
        "\0",
        "ß",
        "a b",
        "@a",
        "#bytes",
        "!",
    ];
    let mut written = Vec::new();
    for (n, one) in (0..).zip(names) {
        for other in names {
            for parts in
                [[one, other, "s", "t"], ["t", one, other, "t"], ["t", "a", one, other], [one, "a", other, "t"]]
            {
                let mut next = record::asked(parts, n, store.now());
                next.state = record::completed(serde_json::json!([one, other]), store.now());
                // Some are the same on both ways.
                if let Ok(Swap::Won(won)) = swap(&store, None, &next).await {
                    written.push(won);
                }
            }
        }
    }
    assert!(written.len() > 1_000);
    for record in &written {
        let RecordKey { tenant, actor, scope, .. } = &record.key;
        assert_eq!(store.get(&record.key).await.unwrap().as_ref(), Some(record));
        for id in record.approval_ids() {
            assert_eq!(store.by_approval(tenant, id).await.unwrap().as_ref(), Some(record));
        }
        for key in store.in_scope(tenant, actor, scope).await.unwrap() {
            assert_eq!((&key.tenant, &key.actor, &key.scope), (tenant, actor, scope));
        }
    }
}

/// Whoever decides a card may die before it is off the list of another slot. Whoever reads the list then takes it off, and leaves
/// those that are only not written yet.
#[tokio::test]
async fn cards_that_were_decided_leave_the_list() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = store_on(&server).await;
    let [mut decided, pending] = [1, 2].map(|n| record::asked(PARTS, n, store.now()));
    for record in [&decided, &pending] {
        win(&store, None, record).await;
    }
    let on_list = server.command(&["ZRANGE", "agent:pending:{acme}", "0", "-1", "WITHSCORES"]).await.unwrap();
    decided = record::next(&decided, State::Approved);
    win(&store, store.get(&decided.key).await.unwrap().as_deref(), &decided).await;
    let later = record::approval_id().to_string();
    let mut put_back = vec!["ZADD".to_owned(), "agent:pending:{acme}".to_owned(), "1".to_owned(), later.clone()];
    for entry in on_list.values().chunks(2) {
        put_back.extend([entry[1].text(), entry[0].text()]);
    }
    server.command(&put_back).await.unwrap();
    assert_eq!(store.pending("acme", None, 9).await.unwrap().len(), 1);
    let left = server.command(&["ZRANGE", "agent:pending:{acme}", "0", "-1"]).await.unwrap();
    let id = |record: &Record| record.approval_ids().next().unwrap().to_string();
    assert_eq!(left.values().iter().map(Value::text).collect::<Vec<_>>(), [later, id(&pending)]);
}

#[tokio::test]
async fn every_server_does_it() {
    for program in programs().unwrap() {
        let options = Options::new().program(&program).append_only().config("appendfsync", "always").unix_socket();
        let server = RedisServer::start(options).await.unwrap();
        let socket = server.socket().unwrap();
        let third = format!("{}?protocol=resp3", server.url());
        for url in [server.url(), third, server.unix_url().unwrap(), format!("unix:{}", socket.display())] {
            let store = RedisStore::builder(&url).prefix(format!("p{}", url.len())).connect().await.unwrap();
            assert_eq!(store.warnings(), &[], "{}", program.name());
            begin_and_finish(&store, 1).await;
            win(&store, None, &record::asked(PARTS, 2, store.now())).await;
            assert_eq!(store.pending("acme", None, 9).await.unwrap().len(), 1, "{}", program.name());
            assert_eq!(store.in_scope("acme", "user_42", "session-1").await.unwrap().len(), 2, "{}", program.name());
            assert_eq!(store.scan(None, 100).await.unwrap().records.len(), 2, "{}", program.name());
            let quota = Quota::per_hour(NonZeroU32::MIN);
            assert_eq!(store.take(BucketKey::new("acme", ["a"]), quota).await.unwrap(), None, "{}", program.name());
            assert!(store.take(BucketKey::new("acme", ["a"]), quota).await.unwrap().is_some(), "{}", program.name());
        }
    }
}

/// A bucket that was written by a clock that has stepped back since is as empty as it was, and fills from now on.
#[tokio::test]
async fn time_that_steps_back_lets_nobody_through_and_keeps_nobody_out() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = store_on(&server).await;
    let bucket = BucketKey::new("acme", ["a"]);
    let quota = Quota::per_second(NonZeroU32::MIN);
    assert_eq!(store.take(bucket, quota).await.unwrap(), None);
    let key = server.command(&["KEYS", "agent:quota:*"]).await.unwrap();
    let Value::Array(keys) = key else { panic!("no list of keys") };
    let name = keys[0].text();
    let value = server.command(&["GET", &name]).await.unwrap().text();
    let ahead: Vec<_> = value.split(' ').map(|at| (at.parse::<u64>().unwrap() + 3_600_000_000).to_string()).collect();
    server.command(&["SET", &name, &ahead.join(" "), "PX", "3601000"]).await.unwrap();
    let wait = store.take(bucket, quota).await.unwrap().unwrap();
    assert!(wait <= std::time::Duration::from_secs(1), "{wait:?}");
    tokio::time::sleep_until(tokio::time::Instant::now() + wait).await;
    assert_eq!(store.take(bucket, quota).await.unwrap(), None);
}

#[tokio::test]
async fn what_the_server_may_forget_is_said() {
    let server = RedisServer::start(Options::new().config("maxmemory-policy", "allkeys-lru")).await.unwrap();
    let store = store_on(&server).await;
    assert_eq!(store.warnings(), &[Warning::MayEvict("allkeys-lru".into()), Warning::NotPersistent]);
    let server = RedisServer::start(Options::new().append_only()).await.unwrap();
    assert_eq!(store_on(&server).await.warnings(), &[Warning::NotSynced("everysec".into())]);
}

#[tokio::test]
async fn what_cannot_be_set_is_refused() {
    for builder in [
        RedisStore::builder("redis://127.0.0.1:1").prefix(""),
        RedisStore::builder("redis://127.0.0.1:1").prefix("a{b}"),
        RedisStore::builder("redis://127.0.0.1:1").seal_key(b"too short"),
        RedisStore::builder("redis://127.0.0.1:1").response_timeout(std::time::Duration::ZERO),
        RedisStore::builder("nonsense"),
        RedisStore::builder("redis://127.0.0.1:1"),
    ] {
        assert!(builder.connect().await.is_err());
    }
}
