//! A tool and its test.
fn main() {}
