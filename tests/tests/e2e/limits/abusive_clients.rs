//! Clients that read no response or never send the body that they announced. Places, memory and the
//! shared connections to the service stay available to others, and are freed again.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use tests::actors::abuse::{Abuse, LARGEST_WINDOW, STREAMS, unread_streams};
use tests::actors::programs::repository;
use tests::actors::setting;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::h2_service::H2Service;
use tests::services::socket_server::response;
use tests::services::streaming_service::StreamingService;
use tests::wait;
use tests::wire::h2_client::H2Client;
use tests::wire::h2_frames::{Fate, FrameClient, fields_of, frame_of, get_fields, header_block};
use tests::wire::metrics::sum;
use tests::wire::raw_client::{HANDSHAKE, RawClient};

/// More than in a release build, whose futures are smaller.
const MAX_IDLE_BYTES: u64 = 9 * 1024;
const OPEN: &str = "/orders/public/file";
/// Just below the bytes that one response of HTTP/2 may have queued.
const FILE_BYTES: usize = 65_000;

fn before(upstream: &str, flags: &[&str]) -> ForgedStack {
    ForgedStack::before(upstream, &[&["--public-path=/public/**"], flags].concat())
}

/// Within which a request of the timeouts that count for it ends.
const BRIEF: [&str; 2] = ["--upstream-read-timeout=1", "--request-body-timeout=1"];
const REQUESTS: &str = "postern_sidecar_requests_total";

fn in_flight(sidecar: &Sidecar) -> u64 {
    sum(sidecar.admin(), "postern_sidecar_requests_in_flight", &[])
}

fn file() -> Vec<u8> {
    response("200 OK", &[&format!("{MARK}: 1")], &[b'x'; FILE_BYTES])
}

fn wait_for_ended_requests(sidecar: &Sidecar, count: u64) {
    wait::until("every request to end", || {
        sum(sidecar.admin(), REQUESTS, &[]) >= count
    });
}

/// Waits until so many requests have their response, read by the client or not.
fn wait_for_responses(sidecar: &Sidecar, count: u64) {
    const OF_SERVICE: &str = "postern_sidecar_upstream_duration_seconds_count";
    wait::until("every request to have its response", || {
        let rejected = sum(sidecar.admin(), REQUESTS, &[("outcome", "rejected")]);
        sum(sidecar.admin(), OF_SERVICE, &[]) + rejected >= count
    });
}

fn begin(abuse: Abuse, sidecar: &Sidecar, bearer: &str) -> Option<TcpStream> {
    abuse.begin(sidecar.address(), OPEN, bearer).unwrap()
}

/// `POSTERN_TEST_IDLE` is the number of connections.
#[test]
fn idle_connections_take_little_memory() {
    let count = setting::number("POSTERN_TEST_IDLE", 1000) as u64;
    let stack = ForgedStack::with(|plan| {
        plan.public_paths(["/public/**"])
            .flags(["--max-connections", "12000"])
    });
    let head = format!("POST {OPEN} HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n");
    let request = [head.as_bytes(), &[b'x'; 20_000]].concat();
    let idle = || {
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(&request);
        assert_eq!(client.response("POST").status(), 200);
        client
    };
    // What the first ones take stays for the others.
    let mut clients: Vec<_> = (0..50).map(|_| idle()).collect();
    let before = stack.sidecar.process().anonymous_kib().unwrap_or(0);
    clients.extend((0..count).map(|_| idle()));
    let after = stack.sidecar.process().anonymous_kib().unwrap_or(0);
    let bytes = (after - before) * 1024 / count;
    assert!(bytes <= MAX_IDLE_BYTES, "{bytes} bytes for each of {count}");
}

/// In `h2` each frame that waits takes memory of its own, which stays with the connection, and many small ones end
/// it.
#[test]
fn small_frames_take_little_memory_and_end_no_connection() {
    const CLIENTS: u64 = 20;
    const FRAMES: usize = 13_000;
    /// See docs/limits.md.
    const MAX_KIB_EACH: u64 = 256;
    let stack = ForgedStack::with(|plan| plan.public_paths(["/public/**"]));
    let resident = || stack.sidecar.process().resident_kib().unwrap_or(0);
    let frames = frame_of(0, 0, 1, b"x").repeat(FRAMES);
    let abuse = || {
        let mut client = FrameClient::connect(stack.sidecar.address());
        // No byte of a body may leave, so the rejection waits, and the request with it.
        client.initial_window(0);
        client.head(1, &fields_of("POST", "/orders/private"), false);
        client.raw(&frames);
        client.head(3, &get_fields(OPEN), true);
        client.window_update(3, LARGEST_WINDOW);
        assert!(matches!(client.fate(3), Fate::Response(_)));
        client.frame(3, 0, 1, &[0, 0, 0, 8]);
        client
    };
    let first = abuse();
    let before = resident();
    let others: Vec<_> = (0..CLIENTS).map(|_| abuse()).collect();
    let each = resident().saturating_sub(before) / CLIENTS;
    assert!(each <= MAX_KIB_EACH, "{each} KiB for each");
    drop((first, others));
}

/// In HPACK a field may take one byte, and in memory a hundred times as much.
#[test]
fn heads_that_grow_in_memory_are_dropped_one_after_the_other() {
    const CLIENTS: usize = 8;
    const FIELDS: usize = 3880;
    const MAX_KIB: u64 = 40 * 1024;
    let stack = ForgedStack::with(|plan| plan.public_paths(["/public/**"]));
    let peak = || stack.sidecar.process().peak_resident_kib().unwrap_or(0);
    // An empty field `b` enters the table of the connection; each 0xbe is another one of it (RFC 7541 §6.1).
    let authority = header_block(&[(":authority", "a")]);
    let fields = [&b"\x83\x86\x84"[..], &authority].concat();
    let begin = [&fields[..], b"\x40\x01b\x00", &[0xbe; FIELDS]].concat();
    let next = [&fields[..], &[0xbe; FIELDS]].concat();
    let mut bytes = frame_of(1, 5, 1, &begin);
    for number in 1..STREAMS {
        bytes.extend(frame_of(1, 5, 2 * number + 1, &next));
    }
    let before = peak();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = FrameClient::connect(stack.sidecar.address());
            client.raw(&bytes);
            client
        })
        .collect();
    for client in &mut clients {
        assert!(matches!(client.fate(2 * STREAMS - 1), Fate::Response(_)));
    }
    let taken = peak() - before;
    assert!(taken <= MAX_KIB, "{taken} KiB");
}

/// Returns the value that a component sets a variable to.
fn setting(kustomization: &str, variable: &str) -> String {
    let start = format!("- {variable}=");
    let mut lines = kustomization.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix(&start));
    value.unwrap_or_else(|| panic!("{variable}")).to_owned()
}

#[test]
fn unread_responses_fit_into_the_memory_of_the_manifests() {
    for component in ["sidecar", "sidecar-plain"] {
        let directory = repository().join("k8s/components").join(component);
        let kustomization = fs::read_to_string(directory.join("kustomization.yaml")).unwrap();
        let container = fs::read_to_string(directory.join("sidecar.yaml")).unwrap();
        let limit = container
            .lines()
            .rev()
            .find_map(|line| line.trim().strip_prefix("memory: ")?.strip_suffix("Mi"))
            .unwrap();
        let limit_kib = limit.parse::<u64>().unwrap() * 1024;
        let connections = setting(&kustomization, "POSTERN_MAX_CONNECTIONS");
        let requests = setting(&kustomization, "POSTERN_MAX_REQUESTS");
        let stack = ForgedStack::with(|plan| {
            plan.public_paths(["/public/**"])
                .environment("POSTERN_MAX_CONNECTIONS", &connections)
                .environment("POSTERN_MAX_REQUESTS", &requests)
        });
        stack.service.responds(file());
        let clients = connections.parse::<u64>().unwrap().min(90);
        // One after the other: at the same time, the sidecar would reject them all.
        let held: Vec<_> = (1..=clients)
            .map(|number| {
                let client = begin(Abuse::UnreadStreams, &stack.sidecar, "");
                wait_for_responses(&stack.sidecar, number * u64::from(STREAMS));
                client
            })
            .collect();
        let resident = stack.sidecar.process().resident_kib().unwrap_or(0);
        assert!(resident < limit_kib, "{resident} KiB of {limit_kib}");
        drop(held);
        stack.sidecar.until_idle();
    }
}

#[test]
fn an_unread_response_of_http_2_keeps_its_permit() {
    // Its share is enough for all streams.
    let flags = ["--max-requests", "200", "--public-path", "/public/**"];
    let long = format!("X-Field: {}", "~".repeat(2 * FILE_BYTES));
    let head_alone = format!("HTTP/1.1 204 No Content\r\n{MARK}: 1\r\n{long}\r\n\r\n");
    for (response, status) in [(file(), 200), (head_alone.into_bytes(), 204)] {
        let stack = ForgedStack::with_flags(flags);
        stack.service.responds(response);
        let held = begin(Abuse::UnreadStreams, &stack.sidecar, "");
        wait_for_responses(&stack.sidecar, u64::from(STREAMS));
        // The kernel's buffers hold the rest.
        let in_flight = in_flight(&stack.sidecar);
        assert!(in_flight > 0, "{status}");
        let user = stack.sidecar.bearing(&stack.token()).get("/list");
        assert_eq!(user.status(), status);
        drop(held);
        stack.sidecar.until_idle();
    }
}

/// Queues many responses, then withdraws the window that they were queued for. Returns the client,
/// and the number of responses that reached it.
fn take_window_back(stack: &ForgedStack) -> (FrameClient, usize) {
    stack.service.responds(file());
    let mut client = FrameClient::connect(stack.sidecar.address());
    unread_streams(&mut client, OPEN, "");
    wait_for_responses(&stack.sidecar, u64::from(STREAMS));
    client.initial_window(0);
    // The initial settings, the large window and this one.
    let ended = client.read_acknowledged(3);
    (client, ended)
}

fn stack_with_write_timeout(seconds: &str) -> ForgedStack {
    let flags = ["--max-requests=200", "--downstream-write-timeout", seconds];
    ForgedStack::with_public(flags)
}

#[test]
fn a_window_that_is_taken_back_keeps_no_permit() {
    let stack = stack_with_write_timeout("4");
    let (mut client, _) = take_window_back(&stack);
    stack.sidecar.until_idle();
    // There were some, and they alone are reset.
    let mut frames = std::iter::from_fn(|| client.frame_from_server());
    assert!(frames.any(|frame| frame.kind == 3));
}

#[test]
fn a_window_that_is_given_back_in_time_gets_its_responses() {
    let stack = stack_with_write_timeout("60");
    let (mut client, mut ended) = take_window_back(&stack);
    assert!(in_flight(&stack.sidecar) > 0);
    std::thread::sleep(Duration::from_secs(2));
    client.initial_window(LARGEST_WINDOW);
    while ended < STREAMS as usize {
        let frame = client.frame_from_server().expect("the other responses");
        ended += usize::from(frame.ends_body());
    }
    stack.sidecar.until_idle();
}

#[test]
fn a_download_whose_window_opens_bit_by_bit_goes_on() {
    let service = H2Service::start();
    let stack = before(&service.url(), &["--downstream-write-timeout", "4"]);
    let mut client = FrameClient::connect(stack.sidecar.address());
    client.initial_window(0);
    client.head(1, &get_fields("/orders/public/large"), true);
    let bytes = 16 * 1024;
    // Together longer than the timeout, each alone far from it.
    for _ in 0..24 {
        std::thread::sleep(Duration::from_millis(200));
        client.window_update(0, bytes);
        client.window_update(1, bytes);
        let mut received = 0;
        while received < bytes as usize {
            received += data(&mut client).len();
        }
    }
}

#[test]
fn a_grpc_call_goes_on_while_its_window_is_closed() {
    let service = H2Service::start();
    let stack = before(&service.url(), &["--downstream-write-timeout", "2"]);
    let bearer = format!("Bearer {}", stack.token());
    let mut head = fields_of("POST", "/orders/pkg.Service/Chat");
    head.extend(grpc_of(&bearer));
    let mut client = FrameClient::connect(stack.sidecar.address());
    client.head(1, &head, false);
    let first = chat(&mut client, b"first");
    assert_eq!(first, b"first");
    client.initial_window(0);
    // Longer than the timeout: nothing waits for the window.
    std::thread::sleep(Duration::from_millis(2500));
    client.frame(0, 0, 1, b"second");
    client.initial_window(65_535);
    assert_eq!(data(&mut client), b"second");
    assert_eq!(chat(&mut client, b"third"), b"third");
}

fn chat(client: &mut FrameClient, message: &[u8]) -> Vec<u8> {
    client.frame(0, 0, 1, message);
    data(client)
}

/// Returns the payload of the next DATA frame.
fn data(client: &mut FrameClient) -> Vec<u8> {
    loop {
        let frame = client.frame_from_server().expect("an open connection");
        assert_ne!(frame.kind, 3, "reset");
        if frame.kind == 0 {
            return frame.payload;
        }
    }
}

#[test]
fn unread_rejections_take_permits_alone() {
    let flags = ["--max-requests", "8"];
    let stack = ForgedStack::with_flags(flags);
    let mut client = FrameClient::connect(stack.sidecar.address());
    // No room for any body.
    client.initial_window(0);
    for number in 0..STREAMS {
        client.head(2 * number + 1, &get_fields("/orders/list"), true);
    }
    wait_for_ended_requests(&stack.sidecar, u64::from(STREAMS) - 6);
    wait::until("permits for others", || in_flight(&stack.sidecar) <= 6);
    stack.sidecar.until_logged("a client was turned away");
    let user = stack.sidecar.bearing(&stack.token()).get("/list");
    assert_eq!(user.status(), 200);
    drop(client);
    stack.sidecar.until_idle();
}

#[test]
fn a_client_that_does_not_read_stops_no_other_over_http_2() {
    for (abuse, clients) in [(Abuse::UnreadDownload, 5), (Abuse::UnreadStreams, 1)] {
        let service = H2Service::start();
        let stack = before(&service.url(), &[]);
        let address = stack.sidecar.address();
        let held = (0..clients).map(|_| abuse.begin(address, "/orders/public/large", "").unwrap());
        let held: Vec<_> = held.collect();
        wait::until("the service to respond to them", || {
            service.requests().len() >= clients
        });
        // Longer than filling a window that all streams share.
        std::thread::sleep(Duration::from_secs(1));
        let user = stack.sidecar.bearing(&stack.token());
        let request = user.request("POST", "/list").body("two");
        for _ in 0..10 {
            assert_eq!(user.send(&request).status(), 200, "{abuse:?}");
        }
        drop(held);
    }
}

#[test]
fn an_upload_that_is_not_read_stops_no_other_on_its_connection() {
    let service = StreamingService::start();
    let stack = before(&service.url(), &[]);
    let client = H2Client::connect(stack.sidecar.address());
    let fields = [("x-wait", "1")];
    let mut stuck = client.open(client.request("POST", "/orders/public/upload", &fields));
    assert!(stuck.fill() > 0);
    let other = client.request("POST", "/orders/public/upload", &[]);
    let response = client.send(other, b"12345").unwrap();
    assert_eq!(response.body, b"5");
    assert_eq!(service.received(), 5, "while the first one is stuck");
}

#[test]
fn a_handshake_has_no_more_time_than_any_request_before_its_101() {
    let service = StreamingService::start();
    let flags = [&BRIEF[..], &["--downstream-write-timeout=1"]].concat();
    let stack = before(&service.url(), &flags);
    let announced = "Content-Length: 5\r\n";
    let clients = [
        ("silent", ""),
        ("silent", announced),
        ("websocket", announced),
        ("download", ""),
        ("fine", announced),
    ]
    .map(|(path, more)| {
        let mut client = RawClient::connect(stack.sidecar.address());
        let lines = format!("{HANDSHAKE}{more}");
        client.send(&stack.head("GET", &format!("/orders/{path}"), &lines));
        (client, path)
    });
    for (mut client, path) in clients {
        assert!(client.is_at_end(), "{path}");
    }
    stack.sidecar.until_idle();
    let expired = "postern_sidecar_streams_expired_total";
    assert_eq!(stack.sidecar.metric(expired), Some(0));
}

/// Returns the fields of a gRPC call.
fn grpc_of(bearer: &str) -> [(&str, &str); 2] {
    [
        ("authorization", bearer),
        ("content-type", "application/grpc"),
    ]
}

#[test]
fn a_grpc_call_outside_its_response_has_any_request_s_time() {
    let (plain, grpc) = (StreamingService::start(), H2Service::start());
    let flags = [&BRIEF[..], &["--downstream-write-timeout=1"]].concat();
    for (service, path, outcome, reason) in [
        (plain.url(), "silent", "rejected", "upstream_timeout"),
        (plain.url(), "fine", "verified", ""),
        (plain.url(), "download", "rejected", "upstream_timeout"),
        (grpc.url(), "early", "verified", ""),
    ] {
        let stack = before(&service, &flags);
        let bearer = format!("Bearer {}", stack.token());
        let client = H2Client::connect(stack.sidecar.address());
        let requests = || plain.heads().len() + grpc.requests().len();
        let earlier = requests();
        let target = format!("/orders/{path}");
        let call = client.open(client.request("POST", &target, &grpc_of(&bearer)));
        wait_for_ended_requests(&stack.sidecar, 1);
        assert_eq!(requests() - earlier, 1, "{path} at the service");
        let labels = [("outcome", outcome), ("reason", reason)];
        let ended = sum(stack.sidecar.admin(), REQUESTS, &labels);
        assert_eq!(ended, 1, "{path}: {outcome} {reason}");
        stack.sidecar.until_idle();
        drop(call);
    }
}

#[test]
fn a_grpc_call_goes_on_while_the_client_sends() {
    let slow = StreamingService::start();
    let timeouts = ["--upstream-read-timeout=2", "--request-body-timeout=2"];
    let stack = before(&slow.url(), &timeouts);
    let bearer = format!("Bearer {}", stack.token());
    let client = H2Client::connect(stack.sidecar.address());
    let mut call = client.open(client.request("POST", "/orders/upload", &grpc_of(&bearer)));
    // Together longer than a timeout, each alone far from it.
    for byte in 0..21_usize {
        call.write(b"x").unwrap();
        wait::until("the byte to arrive", || slow.received() > byte);
        std::thread::sleep(Duration::from_millis(100));
    }
    call.finish().unwrap();
    assert_eq!(call.head().unwrap().status(), 200);
}
