//! A cluster: formed, robbed of a master, whole again.

use tokio::task::JoinSet;
use tower_tool_tests::redis::{Options, RedisCluster, programs, slot};

/// Writes to a master, and waits until a replica has it: what is not copied is lost with the master.
async fn write(cluster: &RedisCluster, key: &str) {
    let master = cluster.node(cluster.master_of(key).await.unwrap()).unwrap();
    let mut connection = master.connect().await.unwrap();
    connection.command(&["SET", key, "v"]).await.unwrap();
    assert_eq!(connection.command(&["WAIT", "1", "5000"]).await.unwrap().integer(), Some(1));
}

#[tokio::test]
async fn a_replica_takes_over_from_a_master_that_is_killed() {
    let mut cluster = RedisCluster::start(3, 1).await.unwrap();
    write(&cluster, "k").await;
    let killed = cluster.kill_master_of("k").await.unwrap();
    assert!(killed < 3);
    let master = cluster.until_failed_over("k", killed).await.unwrap();
    assert_eq!(master, killed + 3);
    assert_eq!(cluster.node(master).unwrap().command(&["GET", "k"]).await.unwrap().text(), "v");
    // The old master comes back as a replica of the new one.
    cluster.node_mut(killed).unwrap().restart().await.unwrap();
    cluster.until_ok().await.unwrap();
    assert_eq!(cluster.master_of("k").await.unwrap(), master);
    assert_eq!(cluster.node(killed).unwrap().info("role").await.unwrap(), "slave");
}

#[tokio::test]
async fn a_replica_takes_over_from_a_master_that_is_paused_and_that_one_learns_it() {
    let cluster = RedisCluster::start(3, 1).await.unwrap();
    let paused = cluster.master_of("k").await.unwrap();
    cluster.node(paused).unwrap().pause().await.unwrap();
    let master = cluster.until_failed_over("k", paused).await.unwrap();
    cluster.node(paused).unwrap().resume().unwrap();
    cluster.until_ok().await.unwrap();
    assert_eq!(cluster.master_of("k").await.unwrap(), master);
}

#[tokio::test]
async fn a_node_sends_the_client_of_another_slot_away() {
    let cluster = RedisCluster::start(3, 0).await.unwrap();
    let master = cluster.master_of("k").await.unwrap();
    let other = cluster.node((master + 1) % 3).unwrap();
    let error = other.command(&["GET", "k"]).await.unwrap_err().to_string();
    let address = cluster.node(master).unwrap().address();
    assert_eq!(error, format!("MOVED {} {address}", slot("k")));
    assert_eq!(cluster.urls().len(), 3);
}

#[tokio::test]
async fn every_program_forms_a_cluster() {
    let mut forming = JoinSet::new();
    for program in programs().unwrap() {
        forming.spawn(async move {
            let cluster = RedisCluster::start_with(Options::new().program(&program), 3, 1).await.unwrap();
            write(&cluster, "k").await;
        });
    }
    forming.join_all().await;
}
