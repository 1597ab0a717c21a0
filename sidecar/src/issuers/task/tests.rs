#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use wire::keys::signing_type::SigningType;
use wire::token::bearer::Bearer;

use super::super::source::auth_server::{Application, EndpointSettings};
use super::*;
use crate::telemetry::metrics::TokenCacheCounters;
use runtime::tls::peer::PeerFiles;

const YEARLY: &str = "0 0 0 1 1 *";

/// Starts an auth server that responds to the n-th fetch with the n-th of these envelopes, and
/// returns the task that fetches from it.
fn task(envelopes: Vec<String>) -> (IssuerTask, Arc<CurrentKeys>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let auth_server = format!("http://{}/auth", listener.local_addr().unwrap());
    thread::spawn(move || {
        for envelope in envelopes {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let length = envelope.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all((head + &envelope).as_bytes());
        }
    });
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let application = Application {
        id: "id".to_owned(),
        secret: "secret".into(),
    };
    let settings = IssuerSettings {
        name: None,
        source: SourceSettings::AuthServer(EndpointSettings {
            auth_server: auth_server.parse().unwrap(),
            tls: PeerFiles::default(),
            application,
            signing_type: SigningType::Hmac,
            wants_list: false,
        }),
        key_cache: None,
        revocations: None,
    };
    let keys = Arc::<CurrentKeys>::default();
    let metrics = Metrics::new(&TokenCacheCounters::default()).0;
    let (task, _) = IssuerTask::new(
        settings,
        Arc::clone(&keys),
        Schedule::new(YEARLY).unwrap(),
        metrics,
    )
    .unwrap();
    (task, keys)
}

fn envelope(success: bool, letter: &str) -> String {
    let key = letter.repeat(32);
    format!(r#"{{"success":{success},"status":200,"msg":"","data":"{key}"}}"#)
}

fn generation(keys: &CurrentKeys) -> Option<u64> {
    keys.load().as_ref().map(|state| state.generation())
}

#[tokio::test]
async fn contract_7_a_failed_fetch_never_replaces_a_key() {
    let envelopes = vec![
        envelope(false, "a"),
        envelope(true, "a"),
        envelope(false, "b"),
        envelope(true, "a"),
        envelope(true, "b"),
    ];
    let (mut task, keys) = task(envelopes);
    for (expected, succeeds) in [
        (None, false),
        (Some(1), true),
        (Some(1), false),
        (Some(1), true),
        (Some(2), true),
        // The server has closed its port.
        (Some(2), false),
    ] {
        assert_eq!(task.fetch(Purpose::Tick).await, succeeds);
        assert_eq!(generation(&keys), expected);
        assert_eq!(keys.failed().is_none(), succeeds);
    }
}

#[test]
fn a_fetch_that_panics_has_failed_and_the_next_one_may_succeed() {
    let (mut task, keys) = task(vec![envelope(true, "a")]);
    // The library panics where a connection is to be made on a runtime without one.
    let deaf = tokio::runtime::Builder::new_current_thread().build();
    deaf.unwrap().block_on(task.fetch(Purpose::Tick));
    let failed = keys.failed().unwrap();
    assert!(failed.reason.contains("panicked"), "{failed:?}");
    let sound = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    sound.unwrap().block_on(task.fetch(Purpose::Tick));
    assert_eq!(generation(&keys), Some(1));
}

async fn until(keys: &CurrentKeys, expected: u64) {
    let reached = async {
        while generation(keys) != Some(expected) {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), reached);
    in_time.await.unwrap();
}

#[tokio::test]
async fn without_a_key_a_failed_fetch_is_tried_again_before_the_tick() {
    let envelopes = vec![
        envelope(false, "a"),
        envelope(false, "a"),
        envelope(true, "a"),
    ];
    let (task, keys) = task(envelopes);
    let run = tokio::spawn(task.run());
    until(&keys, 1).await;
    run.abort();
}

#[tokio::test]
async fn a_fetch_on_demand_does_not_wait_for_the_schedule() {
    let (task, keys) = task(vec![envelope(true, "a"), envelope(true, "b")]);
    let run = tokio::spawn(task.run());
    until(&keys, 1).await;
    let token = Bearer::new("a.b.c").unwrap();
    assert!(keys.on_demand().wait(token, Instant::now()).await);
    assert_eq!(generation(&keys), Some(2));
    run.abort();
}
