#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use postern_token::keys::signing_type::SigningType;
use postern_token::policy::Audience;

use super::super::source::auth_server::{Application, EndpointSettings};
use super::*;
use crate::telemetry::metrics::TokenCacheCounters;
use postern_transport::tls::peer::PeerFiles;

/// Starts an auth server that responds once, and returns the task that fetches from it.
fn task() -> (IssuerTask, Arc<CurrentKeys>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let auth_server = format!("http://{}/auth", listener.local_addr().unwrap());
    thread::spawn(move || {
        let key = "a".repeat(32);
        let envelope = format!(r#"{{"success":true,"status":200,"msg":"","data":"{key}"}}"#);
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let length = envelope.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let _ = stream.write_all((head + &envelope).as_bytes());
    });
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let application = Application {
        id: "id".to_owned(),
        secret: "secret".into(),
        audience: Audience::Any,
    };
    let settings = IssuerSettings {
        name: None,
        source: SourceSettings::AuthServer(EndpointSettings {
            auth_server: auth_server.parse().unwrap(),
            tls: PeerFiles::default(),
            application: Some(application),
            signing_type: SigningType::Hmac,
            wants_list: false,
        }),
        key_cache: None,
        max_revocation_age: None,
    };
    let keys = Arc::<CurrentKeys>::default();
    let metrics = Metrics::new(&TokenCacheCounters::default()).0;
    let (task, _) = IssuerTask::new(
        settings,
        Arc::clone(&keys),
        "0 0 0 1 1 *".parse().unwrap(),
        metrics,
    )
    .unwrap();
    (task, keys)
}

#[test]
fn a_fetch_that_panics_has_failed_and_the_next_one_may_succeed() {
    let (mut task, keys) = task();
    // The library panics where a connection is to be made on a runtime without one.
    let deaf = tokio::runtime::Builder::new_current_thread().build();
    deaf.unwrap().block_on(task.fetch(Purpose::Tick));
    let failed = keys.failed().unwrap();
    assert!(failed.reason.contains("panicked"), "{failed:?}");
    let sound = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    sound.unwrap().block_on(task.fetch(Purpose::Tick));
    assert!(keys.load().is_some());
}
