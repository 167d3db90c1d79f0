//! Sentinels: they name the master, and another when it is killed.

use tokio::task::JoinSet;
use tower_tool_tests::redis::{Options, RedisSentinels, programs};

async fn a_killed_master_is_replaced(options: Options) {
    let mut all = RedisSentinels::start_with(options, 1, 3).await.unwrap();
    assert_eq!((all.master().await.unwrap(), all.urls().len()), (0, 3));
    let mut connection = all.servers()[0].connect().await.unwrap();
    connection.command(&["SET", "k", "v"]).await.unwrap();
    assert_eq!(connection.command(&["WAIT", "1", "5000"]).await.unwrap().integer(), Some(1));
    let killed = all.kill_master().await.unwrap();
    let master = all.until_failed_over(killed).await.unwrap();
    assert_eq!((killed, master), (0, 1));
    let master = &all.servers()[master];
    assert_eq!(master.command(&["GET", "k"]).await.unwrap().text(), "v");
    master.command(&["SET", "k", "w"]).await.unwrap();
}

#[tokio::test]
async fn the_sentinels_of_every_program_replace_a_master_that_is_killed() {
    let mut running = JoinSet::new();
    for program in programs().unwrap() {
        running.spawn(a_killed_master_is_replaced(Options::new().program(&program)));
    }
    running.join_all().await;
}
