//! tower-tool's stores over Redis.
