//! tower-tool's stores over SQLite.
