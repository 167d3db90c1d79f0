//! The canonical form is JSON, reads back to an equal value, and is its own canonical form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tower_tool::canonical;

fuzz_target!(|text: &str| {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    let once = canonical::to_string(&value);
    let again: Value = serde_json::from_str(&once).expect("the canonical form is JSON");
    assert_eq!(canonical::to_string(&again), once);
});
