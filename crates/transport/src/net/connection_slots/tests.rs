#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::future::pending;
use std::pin::pin;

use super::*;

/// Serves a connection of HTTP/2 whose client stays.
fn serve_http_2(slot: Slot) {
    slot.activity().speaks_http_2();
    slot.activity().waits_for_request();
    tokio::spawn(async move { slot.serve(pin!(pending()), || ()).await });
}

#[tokio::test(start_paused = true)]
async fn connections_that_become_busy_as_they_leave_do_not_take_all() {
    let port = ConnectionSlots::new("a port", 10);
    let mut accepted = 0;
    for _ in 0..30 {
        let Some(slot) = port.take([10, 0, 0, 1].into(), false).await else {
            continue;
        };
        accepted += 1;
        let activity = slot.activity().clone();
        let becomes_busy = async move {
            tokio::time::sleep(NOTICE / 2).await;
            activity.serves();
            pending().await
        };
        tokio::spawn(async move { slot.serve(pin!(becomes_busy), || ()).await });
    }
    assert!(
        port.take([10, 0, 0, 2].into(), false).await.is_some(),
        "{accepted}"
    );
    assert!(accepted >= 8, "{accepted}");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_for_no_goodbye() {
    let port = ConnectionSlots::new("a port", 1);
    let started = tokio::time::Instant::now();
    // The last one finds so many that have not even said goodbye.
    for client in 0..MAX_LEAVING as u8 + 2 {
        let slot = port.take([10, 0, client, 1].into(), false).await;
        serve_http_2(slot.unwrap());
    }
    assert!(started.elapsed() < GOODBYE);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_for_no_connection_that_stays() {
    let port = ConnectionSlots::new("a port", 1);
    let mut taken = Vec::new();
    for client in 0..=MAX_LEAVING as u8 {
        let slot = port.take([10, 0, client, 1].into(), false).await;
        taken.push(slot.unwrap());
    }
    let mut newcomer = Box::pin(port.take([10, 1, 0, 1].into(), false));
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, &mut newcomer).await.is_err());
    for slot in &mut taken[..MAX_LEAVING] {
        slot.activity().serves();
        assert!(!slot.leaves());
    }
    let rejected = tokio::time::timeout(second, newcomer).await;
    assert!(rejected.unwrap().is_none());
}
