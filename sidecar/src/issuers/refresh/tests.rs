#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use runtime::admin::health::Health;
use wire::keys::signing_type::SigningType;

use super::super::source::SourceSettings;
use super::super::source::auth_server::EndpointSettings;
use super::super::tls::TlsFiles;
use super::*;
use crate::telemetry::metrics::TokenCacheCounters;

const YEARLY: &str = "0 0 0 1 1 *";

/// Starts an auth server that responds to the n-th fetch with the n-th of these envelopes.
fn refresher(envelopes: Vec<String>) -> (Arc<Refresher>, Arc<CurrentKeys>, Health) {
    refresher_with(YEARLY, envelopes)
}

fn refresher_with(
    cron: &str,
    envelopes: Vec<String>,
) -> (Arc<Refresher>, Arc<CurrentKeys>, Health) {
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
    let source = SourceSettings::AuthServer(EndpointSettings {
        auth_server: auth_server.parse().unwrap(),
        tls: TlsFiles::default(),
        application,
        signing_type: SigningType::Hmac,
    });
    let source = KeySource::new(source).unwrap();
    let keys = Arc::new(CurrentKeys::default());
    let health = Health::new();
    health.set_started();
    let ready = health.condition("verification_key", "not fetched yet");
    let metrics = Metrics::new(&TokenCacheCounters::default()).0;
    let schedule = Schedule::new(cron).unwrap();
    let of = NamedKeys {
        name: None,
        keys: Arc::clone(&keys),
    };
    let refresher = Refresher::new(source, schedule, &of, metrics, ready.into());
    (Arc::new(refresher), keys, health)
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
    let (refresher, keys, health) = refresher(vec![
        envelope(false, "a"),
        envelope(true, "a"),
        envelope(false, "b"),
        envelope(true, "a"),
        envelope(true, "b"),
    ]);
    for (expected, ready) in [
        (None, false),
        (Some(1), true),
        (Some(1), true),
        (Some(1), true),
        (Some(2), true),
        // The server has closed its port.
        (Some(2), true),
    ] {
        refresher.refresh().await;
        assert_eq!(generation(&keys), expected);
        assert_eq!(health.is_ready(), ready);
    }
}

#[test]
fn a_fetch_that_panics_has_failed_and_the_next_one_may_succeed() {
    let (refresher, keys, health) = refresher(vec![envelope(true, "a")]);
    // The library panics where a connection is to be made on a runtime without one.
    let deaf = tokio::runtime::Builder::new_current_thread().build();
    deaf.unwrap().block_on(refresher.refresh());
    let conditions = serde_json::to_string(&health.conditions()).unwrap();
    assert!(conditions.contains("panicked"), "{conditions}");
    let sound = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    sound.unwrap().block_on(refresher.refresh());
    assert_eq!(generation(&keys), Some(1));
}

#[tokio::test]
async fn there_is_one_fetch_at_a_time() {
    let (refresher, keys, _) = refresher(vec![envelope(true, "a")]);
    let under_way = refresher.source.lock().await;
    refresher.refresh().await;
    assert_eq!(generation(&keys), None, "left out");
    drop(under_way);
    refresher.refresh().await;
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
async fn the_first_fetch_does_not_wait_for_the_schedule() {
    let (refresher, keys, _) = refresher(vec![envelope(true, "a")]);
    let run = tokio::spawn(refresher.run());
    until(&keys, 1).await;
    run.abort();
}

#[tokio::test]
async fn without_a_key_a_failed_fetch_is_tried_again_before_the_tick() {
    let envelopes = vec![
        envelope(false, "a"),
        envelope(false, "a"),
        envelope(true, "a"),
    ];
    let (refresher, keys, _) = refresher(envelopes);
    let run = tokio::spawn(refresher.run());
    until(&keys, 1).await;
    assert_eq!(keys.attempts().retry(), None, "from now on the tick alone");
    run.abort();
}

#[tokio::test]
async fn a_failure_beside_the_schedule_is_tried_again_as_well() {
    let (refresher, keys, _) = refresher(vec![envelope(false, "a")]);
    let ticks = refresher.schedule.start().await.unwrap();
    let waits = refresher.wait(&ticks);
    tokio::pin!(waits);
    let waits_already = tokio::time::timeout(Duration::ZERO, &mut waits).await;
    assert!(waits_already.is_err());
    refresher.refresh().await;
    assert!(keys.attempts().retry().is_some());
    let retry = tokio::time::timeout(Duration::from_secs(30), waits);
    assert!(retry.await.is_ok());
}

#[tokio::test]
async fn the_schedule_fetches_again() {
    let envelopes = vec![envelope(true, "a"), envelope(true, "b")];
    let (refresher, keys, _) = refresher_with("* * * * * *", envelopes);
    let run = tokio::spawn(refresher.run());
    until(&keys, 2).await;
    run.abort();
}

#[tokio::test]
async fn a_fetch_on_demand_does_not_wait_for_the_schedule() {
    let (refresher, keys, _) = refresher(vec![envelope(true, "a"), envelope(true, "b")]);
    let run = tokio::spawn(refresher.run());
    until(&keys, 1).await;
    keys.on_demand_fetch().wait(Instant::now()).await;
    assert_eq!(generation(&keys), Some(2));
    run.abort();
}
