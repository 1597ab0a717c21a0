//! Requests of several clients on one connection to the service, which one of them abuses.

use std::time::Duration;

use tests::services::frame_service::{FrameRequest, FrameService};

use super::*;

/// Longer than the sidecar's time for a response before others take another connection.
const SILENCE: Duration = Duration::from_millis(5500);

fn in_front_of_frames(
    respond: impl Fn(&FrameRequest) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (FrameService, ForgedStack) {
    let service = FrameService::start(respond);
    let stack = ForgedStack::before(&service.url(), &["--public-path=/public/**"]);
    (service, stack)
}

fn goes_on(mut call: OpenStream<'_>) {
    assert_eq!(call.read().unwrap().unwrap(), "first");
    call.write(b"second").unwrap();
    assert_eq!(call.read().unwrap().unwrap(), "second");
}

/// Netty and others end a whole connection for one block of fields that is too long.
#[test]
fn long_fields_of_one_client_end_no_other_s_call() {
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let other = H2Client::connect(stack.sidecar.address());
    let call = chat(&other, &bearer(&stack), "first");

    let client = H2Client::connect(stack.sidecar.address());
    let (long, longer) = ("~".repeat(9 * 1024), "~".repeat(40 * 1024));
    let target = format!("/orders/public/x?{longer}");
    for (path, value, expected) in [
        ("/orders/public/x", &*long, "200"),
        ("/orders/public/x", &*longer, "502 upstream_unavailable"),
        (&*target, "", "200"),
    ] {
        let request = client.request("GET", path, &[("x", value)]);
        assert_eq!(client.send(request, b"").unwrap().verdict(), expected);
    }
    assert!(service.connections() >= 4, "one for each long head");

    let mut client = FrameClient::connect(stack.sidecar.address());
    client.head(1, &fields_of("POST", "/orders/public/x"), false);
    client.frame(0, 0, 1, b"x");
    client.head(1, &[("x", &"~".repeat(12 * 1024))], true);
    client.fate(1);
    goes_on(call);
}

#[test]
fn calls_that_one_client_cancels_end_no_other_s_call() {
    const CANCELLED: usize = 250;
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let other = H2Client::connect(stack.sidecar.address());
    let call = chat(&other, &bearer(&stack), "first");

    let client = H2Client::connect(stack.sidecar.address());
    let fields = [("content-type", "application/grpc")];
    for cancelled in (10..=CANCELLED).step_by(10) {
        let open = |_| {
            let mut open = client.open(client.request("POST", "/orders/public/x", &fields));
            open.head().unwrap();
            open
        };
        drop((0..10).map(open).collect::<Vec<_>>());
        wait::until("the service to lose its calls", || {
            service.cut_off() >= cancelled
        });
    }
    goes_on(call);
}

/// A service of the library `h2` ends a connection for 21 requests that were reset before it has accepted
/// them.
#[test]
fn requests_taken_back_at_once_end_no_other_s_call() {
    const CLIENTS: usize = 4;
    const REQUESTS: u32 = 15;
    for path in ["/orders/public/x", "/orders/public/silent"] {
        let service = H2Service::start();
        let stack = in_front_of(&service, &[]);
        let other = H2Client::connect(stack.sidecar.address());
        let call = chat(&other, &bearer(&stack), "first");

        let mut fields = fields_of("POST", path);
        fields.push(("content-type", "application/grpc"));
        let connect = |_| FrameClient::connect(stack.sidecar.address());
        let mut clients: Vec<_> = (0..CLIENTS).map(connect).collect();
        for client in &mut clients {
            for number in 0..REQUESTS {
                let stream = 2 * number + 1;
                client.head(stream, &fields, false);
                client.frame(3, 0, stream, &[0, 0, 0, 8]);
            }
        }
        wait::until("the service to lose its calls", || {
            service.cut_off() >= CLIENTS * REQUESTS as usize
        });
        goes_on(call);
    }
}

/// In `h2` each frame that waits takes memory of its own, and many small ones end the connection.
#[test]
fn unread_small_frames_end_no_other_s_call() {
    const RESPONSES: u32 = 8;
    /// See docs/limits.md. On a busy machine all frames of one response may be in the library at once, and
    /// its memory stays.
    const MAX_KIB_EACH: u64 = 3 * 1024;
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let other = H2Client::connect(stack.sidecar.address());
    let call = chat(&other, &bearer(&stack), "first");
    let resident = || stack.sidecar.process().resident_kib().unwrap_or(0);

    let before = resident();
    let mut client = FrameClient::connect(stack.sidecar.address());
    for number in 0..RESPONSES {
        let fields = get_fields("/orders/public/drops");
        client.head(2 * number + 1, &fields, true);
        wait::until("the service to send its response", || {
            let requests = service.requests();
            let sent = requests.iter().filter(|request| request.body.is_some());
            sent.count() > number as usize
        });
    }
    goes_on(call);
    let taken = resident() - before;
    assert!(taken < u64::from(RESPONSES) * MAX_KIB_EACH, "{taken} KiB");
    // One response arrives whole.
    client.window_update(0, 1024 * 1024);
    client.window_update(1, 1024 * 1024);
    let mut received = 0;
    for frame in client.frames_of(1) {
        match frame.kind {
            0 => received += frame.payload.len(),
            1 if frame.flags & 1 == 1 => break,
            _ => {}
        }
    }
    assert_eq!(received, H2Service::DROPS_BYTES);
}

/// Most services have one window for a body and for all bodies of a connection.
#[test]
fn an_upload_that_stays_unread_stops_no_later_request() {
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let client = H2Client::connect(stack.sidecar.address());
    let mut stuck = client.open(client.request("POST", "/orders/public/silent", &[]));
    assert!(stuck.fill() > 0);
    let other = client.request("POST", "/orders/public/x", &[]);
    assert_eq!(client.send(other, b"12345").unwrap().body, b"12345");
}

/// The C core of gRPC keeps an error of a value with its name in the table, for the values of others too.
#[test]
fn no_field_of_a_client_enters_the_table_that_all_share() {
    let (service, stack) = in_front_of_frames(|request| Some(request.response(&[])));
    let mut client = FrameClient::connect(stack.sidecar.address());
    let mut fields = fields_of("POST", "/orders/public/x");
    fields.extend([
        ("session-bin", "!"),
        ("grpc-timeout", "xyz"),
        ("accept", "a"),
    ]);
    client.head(1, &fields, false);
    client.head(1, &[("session-bin", "!"), ("checksum", "1")], true);
    assert_eq!(client.fate(1), Fate::Response(String::new()));
    assert_eq!(service.requests()[0].value("checksum"), "1");
    let names: Vec<_> = service.kept_names().into_iter().collect();
    assert_eq!(names, [":authority"]);
}

/// Its peer may be gone while the socket stays open.
#[test]
fn a_connection_that_is_silent_gets_no_further_request() {
    let (service, stack) =
        in_front_of_frames(|request| (request.connection > 0).then(|| request.response(&[])));
    let mut waiting = FrameClient::connect(stack.sidecar.address());
    waiting.head(1, &get_fields("/orders/public/x"), true);
    wait::until("the first request", || service.requests().len() == 1);
    std::thread::sleep(SILENCE);
    let client = H2Client::connect(stack.sidecar.address());
    let request = client.request("GET", "/orders/public/x", &[]);
    assert_eq!(client.send(request, b"").unwrap().verdict(), "200");
    assert_eq!(service.connections(), 2);
}

/// For a control byte in a field the library ends the whole connection.
#[test]
fn a_malformed_response_to_one_client_ends_no_other_s_get() {
    let (service, stack) = in_front_of_frames(|request| match request.value(":path") {
        "/orders/public/held" if request.connection == 0 => Some(Vec::new()),
        "/orders/public/bad" => Some(request.response(&[("x-a", "a\x01b")])),
        _ => Some(request.response(&[])),
    });
    let connect = || H2Client::connect(stack.sidecar.address());
    let (attacker, other) = (connect(), connect());
    let get = |client: &H2Client, path: &str| {
        let request = client.request("GET", &format!("/orders/public/{path}"), &[]);
        client.send(request, b"").unwrap().verdict()
    };
    std::thread::scope(|scope| {
        let held = scope.spawn(|| get(&other, "held"));
        wait::until("the other request", || service.requests().len() == 1);
        assert_eq!(get(&attacker, "bad"), "502 upstream_malformed");
        assert_eq!(held.join().unwrap(), "200");
    });
    let requests = service.requests();
    let bad = |request: &&FrameRequest| request.value(":path").ends_with("bad");
    assert_eq!(requests.iter().filter(bad).count(), 2);
    // From now on each client has connections of its own.
    std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| assert_eq!(get(&other, "x"), "200"));
            scope.spawn(|| assert_eq!(get(&attacker, "bad"), "502 upstream_malformed"));
        }
    });
    let later = &service.requests()[requests.len()..];
    let (bad, good): (Vec<_>, Vec<_>) = later.iter().partition(bad);
    for request in good {
        assert!(bad.iter().all(|bad| bad.connection != request.connection));
    }
}
