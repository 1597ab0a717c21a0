//! A whole server in this process, with stores that fail in rare ways.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::config::tests::args;
use crate::store::conformance::unsteady::{Failure, Unsteady};

#[tokio::test]
async fn a_server_whose_synchronization_ends_stops_to_be_restarted() {
    let args = args(&[
        "--listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--store-poll-interval=1",
    ]);
    let config = Config::from_args(&args).unwrap();
    let store = Unsteady::new();
    store.fail(Failure::Panics);
    let public = listener::bind(Port::Public, args.listening.listen).unwrap();
    let serving = serve_on(
        public,
        &args,
        config,
        OpenStore::unencrypted(Arc::new(store)),
        None,
        Terminations::install().unwrap(),
    );
    let outcome = tokio::time::timeout(Duration::from_secs(60), serving).await;

    let failure = outcome.unwrap().unwrap_err();
    assert_eq!(failure.code(), 70);
    let line = failure.to_string();
    assert!(
        line.starts_with("the synchronization has ended: ") && line.contains("out of bounds"),
        "{line}"
    );
}
