//! Records that somebody else wrote, or changed, are errors and never records.

use std::sync::Arc;

use tower_tool_core::store::LedgerStore as _;
use tower_tool_redis::RedisStore;
use tower_tool_tests::redis::{Options, RedisServer, programs};

use crate::{begin_and_finish, name_of, store_on};

#[tokio::test]
async fn without_the_right_seal_a_record_is_corrupt() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let sealed = RedisStore::builder(&server.url()).seal_key(&[1; 32]).connect().await.unwrap();
    let other = RedisStore::builder(&server.url()).seal_key(&[2; 32]).connect().await.unwrap();
    let plain = store_on(&server).await;
    assert!(sealed.is_sealed() && !plain.is_sealed());
    let one = begin_and_finish(&sealed, 1).await;
    let two = begin_and_finish(&sealed, 2).await;
    let unsealed = begin_and_finish(&plain, 3).await;
    for (store, record) in [(&other, &one), (&sealed, &unsealed), (&plain, &one)] {
        let error = store.get(&record.key).await.unwrap_err();
        assert!(error.is_corrupt(), "{error:?}");
        assert!(format!("{error:?}").contains(&name_of(&record.key)), "{error:?} names no key");
        assert!(store.swap(&record.key, None, None).await.is_err_and(|error| error.is_corrupt()));
    }
    // Another's whole record under this name; another's result; none of either is taken.
    let [name, from] = [name_of(&one.key), name_of(&two.key)];
    let bodies = "agent:body:{acme/session-1}:user_42";
    let member = |name: &str| name.split_once("}:").unwrap().1.to_owned();
    let [this, that] = [member(&name), member(&from)];
    let body = server.command(&["HGET", bodies, &that]).await.unwrap().text();
    let body_seal = server.command(&["HGET", bodies, &format!("!{that}")]).await.unwrap().text();
    server.command(&["HSET", bodies, &this, &body.replace("12.5", "13.5")]).await.unwrap();
    assert!(sealed.get(&one.key).await.is_err_and(|error| error.is_corrupt()), "a changed result");
    server.command(&["HSET", bodies, &this, &body, &format!("!{this}"), &body_seal]).await.unwrap();
    assert!(sealed.get(&one.key).await.is_err_and(|error| error.is_corrupt()), "another's result");
    server.command(&["DEL", &name]).await.unwrap();
    server.command(&["RESTORE", &name, "0", "x"]).await.unwrap_err();
    let fields = ["r", "v", "s", "n", "a"];
    for field in fields {
        let value = server.command(&["HGET", &from, field]).await.unwrap().text();
        server.command(&["HSET", &name, field, &value]).await.unwrap();
    }
    for store in [&sealed, &plain] {
        assert!(store.get(&one.key).await.is_err_and(|error| error.is_corrupt()), "another's record");
    }
    server.command(&["HSET", &from, "r", "1"]).await.unwrap();
    assert!(plain.get(&two.key).await.is_err_and(|error| error.is_corrupt()), "another revision");
    server.command(&["HSET", &from, "v", "{}"]).await.unwrap();
    assert!(plain.get(&two.key).await.is_err_and(|error| error.is_corrupt()), "no record");
    assert!(plain.scan(None, 100).await.is_err_and(|error| error.is_corrupt()), "among all");
}

/// What is there under the name of a record, and is none, is no reason to take it for absent.
#[tokio::test]
async fn what_is_no_record_is_corrupt() {
    for program in programs().unwrap() {
        let server = RedisServer::start(Options::new().program(&program)).await.unwrap();
        let store = store_on(&server).await;
        let one = begin_and_finish(&store, 1).await;
        let name = name_of(&one.key);
        server.command(&["SET", &name, "x"]).await.unwrap();
        let error = store.get(&one.key).await.unwrap_err();
        assert!(error.is_corrupt() && format!("{error:?}").contains(&name), "{}: {error:?}", program.name());
        assert!(store.swap(&one.key, None, Some(Arc::new(one.clone()))).await.is_err());
    }
}
