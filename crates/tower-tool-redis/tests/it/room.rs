//! A server without room, and one that forgot.

use tower_tool_core::store::{LedgerStore as _, StoreError, Swap};
use tower_tool_test::record;
use tower_tool_tests::redis::{Options, RedisServer, programs};

use crate::{begin_and_finish, claim, done, get, name_of, store_on, swap, win};

#[tokio::test]
async fn a_server_without_room_refuses_and_changes_nothing() {
    for program in programs().unwrap() {
        let server = RedisServer::start(Options::new().program(&program)).await.unwrap();
        let store = store_on(&server).await;
        let kept = begin_and_finish(&store, 1).await;
        let running = claim(&store, 2);
        win(&store, None, &running).await;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
        for (before, next) in [(None, claim(&store, 3)), (Some(&running), done(&store, &running))] {
            let refused = swap(&store, before, &next).await;
            assert!(refused.as_ref().is_err_and(StoreError::is_full), "{}: {refused:?}", program.name());
        }
        assert_eq!(get(&store, &kept.key).await, Some(kept.clone()), "{}", program.name());
        assert_eq!(get(&store, &running.key).await, Some(running.clone()));
        assert_eq!(get(&store, &record::key(crate::PARTS, 3)).await, None);
        // What makes room is done.
        assert!(matches!(store.swap(&kept.key, Some(kept.revision), None).await, Ok(Swap::Won(_))));
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
        win(&store, Some(&running), &done(&store, &running)).await;
    }
}

#[tokio::test]
async fn a_claim_that_the_server_forgot_is_lost_when_it_is_finished() {
    let server = RedisServer::start(Options::new()).await.unwrap();
    let store = store_on(&server).await;
    let running = claim(&store, 1);
    win(&store, None, &running).await;
    server.command(&["DEL", &name_of(&running.key)]).await.unwrap();
    assert!(matches!(swap(&store, Some(&running), &done(&store, &running)).await, Ok(Swap::Lost(None))));
    assert_eq!(get(&store, &running.key).await, None);
}
