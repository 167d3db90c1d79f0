//! Whatever the boundary parser takes, `serde_json` takes, and both read the same; and an error never shows what it refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tower_tool::{ToolError, arguments, canonical};

fuzz_target!(|bytes: &[u8]| {
    match arguments::from_bytes(bytes) {
        Ok(read) => {
            assert!(arguments::check(&read).is_ok());
            let blank = bytes.iter().all(u8::is_ascii_whitespace) || read == Value::Object(serde_json::Map::new());
            if !blank {
                let other: Value = serde_json::from_slice(bytes).expect("what we read is JSON");
                assert_eq!(canonical::to_string(&read), canonical::to_string(&other));
            }
        }
        Err(error) => {
            let error = ToolError::from(error);
            assert!(error.safe_message().len() <= 1024);
        }
    }
});
