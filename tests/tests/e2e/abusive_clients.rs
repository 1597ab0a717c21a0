//! Whatever a client does that takes nothing of its answers or never sends what it announced: places, memory
//! and the shared connections to the service are there for others, and come back.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use tests::abuse::{Abuse, STREAMS};
use tests::auth_server::admin_get;
use tests::echo_service::MARK;
use tests::h2_client::{FrameClient, H2Client};
use tests::h2_service::H2Service;
use tests::keys::SigningType;
use tests::programs::repository;
use tests::raw_client::RawClient;
use tests::sidecar::{Sidecar, SidecarPlan};
use tests::socket_server::response;
use tests::stack::ForgedStack;
use tests::streaming_service::StreamingService;
use tests::wait;

use super::forwarding::stack;

const OPEN: &str = "/orders/public/file";
/// Just below what may be left to send of one HTTP/2 answer when its handler ends.
const FILE_BYTES: usize = 65_000;

fn in_front_of(stack: &ForgedStack, upstream: &str, flags: &[&str]) -> Sidecar {
    SidecarPlan::to(upstream, &stack.auth_server.url())
        .flags(["--signing-type", "ecdsa", "--pass", "/public/**"])
        .flags(flags.iter().copied())
        .start()
        .ready()
}

/// The sum of all samples whose line begins so.
fn metric(sidecar: &Sidecar, begin: &str) -> u64 {
    let metrics = admin_get(sidecar.admin(), "/metrics").text();
    let lines = metrics.lines().filter(|line| line.starts_with(begin));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

fn file() -> Vec<u8> {
    response("200 OK", &[&format!("{MARK}: 1")], &[b'x'; FILE_BYTES])
}

fn wait_for_free_places(sidecar: &Sidecar) {
    wait::until("all places to be free", || {
        (metric(sidecar, "postern_sidecar_requests_in_flight ") == 0).then_some(())
    });
}

fn wait_for_ended_requests(sidecar: &Sidecar, count: u64) {
    wait::until("every request to end", || {
        (metric(sidecar, "postern_sidecar_requests_total{") >= count).then_some(())
    });
}

fn begin(abuse: Abuse, sidecar: &Sidecar, bearer: &str) -> Option<TcpStream> {
    abuse.begin(sidecar.address(), OPEN, bearer).unwrap()
}

/// What the manifest sets a variable to.
fn manifest_value(manifest: &str, variable: &str) -> String {
    let mut lines = manifest.lines();
    let found = lines.find(|line| line.trim() == format!("- name: {variable}"));
    assert!(found.is_some(), "{variable}");
    let value = lines
        .next()
        .and_then(|line| line.trim().strip_prefix("value: "));
    value.unwrap().trim_matches('"').to_owned()
}

#[test]
fn who_does_not_read_stops_nobody_at_an_http_2_service() {
    let stack = stack();
    let service = H2Service::start();
    for (abuse, clients) in [(Abuse::UnreadDownload, 5), (Abuse::UnreadStreams, 1)] {
        let sidecar = in_front_of(&stack, &service.url(), &[]);
        let before = service.requests().len();
        let held: Vec<_> = (0..clients)
            .map(|_| {
                abuse
                    .begin(sidecar.address(), "/orders/public/large", "")
                    .unwrap()
            })
            .collect();
        wait::until("the service to answer them", || {
            (service.requests().len() >= before + clients).then_some(())
        });
        // Longer than it takes to fill a window that all streams share.
        std::thread::sleep(Duration::from_secs(1));
        let user = sidecar.bearing(&stack.token());
        let request = user.request("POST", "/list").body("two");
        for _ in 0..10 {
            assert_eq!(user.send(&request).status(), 200, "{abuse:?}");
        }
        drop(held);
    }
}

#[test]
fn an_upload_that_nobody_reads_stops_no_other_on_its_connection() {
    let stack = stack();
    let service = StreamingService::start();
    let sidecar = in_front_of(&stack, &service.url(), &[]);
    let client = H2Client::connect(sidecar.address());
    let fields = [("x-wait", "1")];
    let mut stuck = client.open(client.request("POST", "/orders/public/upload", &fields));
    assert!(stuck.fill() > 0);
    let other = client.request("POST", "/orders/public/upload", &[]);
    let answer = client.send(other, b"12345").unwrap();
    assert_eq!(answer.body, b"5");
    assert_eq!(service.received(), 5, "while the first one is stuck");
}

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn a_handshake_has_no_more_time_than_any_request_before_its_101() {
    let stack = stack();
    let service = StreamingService::start();
    let flags = [
        "--upstream-read-timeout",
        "1",
        "--request-body-timeout",
        "1",
    ];
    let sidecar = in_front_of(
        &stack,
        &service.url(),
        &[&flags[..], &["--send-timeout", "1"]].concat(),
    );
    let token = stack.token();
    let announced = "Content-Length: 5\r\n";
    for (path, more) in [
        ("silent", ""),
        ("silent", announced),
        ("websocket", announced),
        ("download", ""),
        ("fine", announced),
    ] {
        let mut client = RawClient::connect(sidecar.address());
        let head = format!(
            "GET /orders/{path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{HANDSHAKE}{more}\r\n"
        );
        client.send(head.as_bytes());
        assert!(client.is_at_end(), "{path} {more}");
        wait_for_free_places(&sidecar);
    }
    assert_eq!(metric(&sidecar, "postern_sidecar_streams_ended_total "), 0);
}

#[test]
fn a_handshake_that_nobody_answers_ends_with_its_token() {
    let stack = stack();
    let service = StreamingService::start();
    let flags = ["--upstream-read-timeout", "0", "--leeway", "0"];
    let sidecar = in_front_of(&stack, &service.url(), &flags);
    let now = tests::clock::now();
    let token = stack.forge.token(now, &serde_json::json!({"exp": now + 4}));
    let mut client = RawClient::connect(sidecar.address());
    let head = format!(
        "GET /orders/silent HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{HANDSHAKE}\r\n"
    );
    client.send(head.as_bytes());
    assert!(client.is_at_end());
    wait_for_free_places(&sidecar);
}
