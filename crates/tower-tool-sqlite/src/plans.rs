//! No question grows with the number of records: each is answered by an index.

use rusqlite::Connection;
use rusqlite::types::Null;

use crate::{caps, find, keeper, quota, schema, table, watch};

#[test]
fn every_question_is_answered_by_an_index() {
    let file = Connection::open_in_memory().unwrap();
    schema::migrate(&file, "ledger.db".as_ref()).unwrap();
    let all = [
        find::BY_KEY,
        find::REVISION,
        find::CARDS,
        find::BY_ID,
        find::OPENED,
        find::PENDING,
        find::IN_SCOPE,
        find::SCAN,
        caps::FORGETTABLE,
        caps::RECORDS,
        caps::OF_SESSION,
        caps::OF_ALL,
        caps::OLDEST_OF_SESSION,
        caps::OLDEST_OF_ALL,
        caps::BY_ROW,
        caps::DROP,
        table::UPDATE,
        table::DELETE,
        table::DELETE_IDS,
        table::DELETE_BODY,
        quota::FULL_AT,
        quota::COUNT,
        quota::EMPTY,
        keeper::NOTE,
        watch::CHANGES,
    ];
    for sql in all {
        let mut statement = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let nothing = vec![Null; statement.parameter_count()];
        let plan: Vec<String> = statement
            .query_map(rusqlite::params_from_iter(nothing), |row| row.get(3))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let is_slow = |step: &String| step.starts_with("SCAN") || step.contains("TEMP B-TREE");
        assert!(!plan.iter().any(is_slow), "{sql}\n{plan:#?}");
    }
}
