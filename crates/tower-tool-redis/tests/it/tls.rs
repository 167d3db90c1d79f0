//! Servers that are spoken to in secret. Their certificate is for `127.0.0.1` and made for these tests.

use std::net::TcpListener;
use std::path::Path;

use tower_tool_redis::RedisStore;
use tower_tool_tests::redis::{Options, RedisServer, programs};

use crate::begin_and_finish;

#[tokio::test]
async fn certificates_are_checked() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls");
    let mut able = 0;
    for program in programs().unwrap() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut options = Options::new().program(&program);
        for (name, value) in [
            ("tls-port", port.to_string()),
            ("tls-cert-file", files.join("server.pem").display().to_string()),
            ("tls-key-file", files.join("server.key").display().to_string()),
            ("tls-ca-cert-file", files.join("ca.pem").display().to_string()),
            ("tls-auth-clients", "no".to_owned()),
        ] {
            options = options.config(name, value);
        }
        // Not every program was built for it.
        let Ok(_server) = RedisServer::start(options).await else { continue };
        able += 1;
        let url = format!("rediss://127.0.0.1:{port}");
        let roots = std::fs::read(files.join("ca.pem")).unwrap();
        let store = RedisStore::builder(&url).root_certificates(roots.clone()).connect().await.unwrap();
        begin_and_finish(&store, 1).await;
        assert!(RedisStore::connect(&url).await.is_err(), "the system does not trust it");
        let plain = RedisStore::builder(&format!("redis://127.0.0.1:{port}")).connect().await;
        assert!(plain.is_err(), "not in secret");
    }
    assert!(able > 0, "no server here can be spoken to in secret");
}
