//! Bodies of every shape and size, in both directions.

use std::io::{BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use tests::actors::setting;
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::h2_service::H2Service;
use tests::services::socket_server::response;
use tests::services::streaming_service::StreamingService;
use tests::wait;
use tests::wire::clock;
use tests::wire::h2_client::H2Client;
use tests::wire::message::Message;
use tests::wire::raw_client::{RawClient, head_with_token};

use super::forwarding::stack;

/// Max growth while streaming: the buffers of a few connections, and the allocator's reserve.
const FLAT_KIB: u64 = 8 * 1024;

#[test]
fn a_large_body_streams_up_and_down_in_little_memory() {
    let service = StreamingService::start();
    let stack = ForgedStack::before(&service.url(), &[]);
    let Some(before) = stack.sidecar.process().resident_kib() else {
        tests::skip::skip("the memory of a large body", "a system with /proc");
        return;
    };
    let bytes = setting::number("POSTERN_TEST_BODY_BYTES", 256 * 1024 * 1024);
    let chunk = vec![b'x'; 1024 * 1024];

    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(&stack.head(
        "PUT",
        "/orders/upload",
        &format!("Content-Length: {bytes}\r\n"),
    ));
    let mut left = bytes;
    while left > 0 {
        let part = left.min(chunk.len());
        client.handle().write_all(&chunk[..part]).unwrap();
        left -= part;
    }
    assert_eq!(client.response("PUT").text(), bytes.to_string());

    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(&stack.head("GET", "/orders/endless", ""));
    let mut handle = client.handle();
    let mut buffer = vec![0; 1024 * 1024];
    let mut received = 0;
    while received < bytes {
        received += handle.read(&mut buffer).unwrap();
    }
    drop((client, handle));
    service.wait_for_broken_off(1);
    let after = stack.sidecar.process().resident_kib().unwrap();
    assert!(
        after < before + FLAT_KIB,
        "{before} KiB before, {after} KiB after"
    );
}

#[test]
fn slow_readers_and_slow_writers_slow_the_other_side() {
    let stack = stack();
    let service = StreamingService::start();
    let sidecar = stack.in_front_of(&service.url(), &[]);
    let mut reader = RawClient::connect(sidecar.address());
    reader.send(&stack.head("GET", "/orders/endless", ""));
    // The sockets' buffers fill up; then the flow stops.
    let settled = |count: &dyn Fn() -> usize| {
        let mut last = usize::MAX;
        wait::until("the flow to stop", || {
            let now = count();
            let stopped = now > 0 && now == last;
            last = now;
            std::thread::sleep(Duration::from_millis(300));
            stopped.then_some(now)
        })
    };
    let sent = settled(&|| service.received());
    assert!(sent < 64 * 1024 * 1024, "{sent} bytes went somewhere");
    drop(reader);
    service.wait_for_broken_off(1);

    let service = StreamingService::start();
    let sidecar = stack.in_front_of(&service.url(), &[]);
    let mut writer = RawClient::connect(sidecar.address());
    let bytes = 64 * 1024 * 1024;
    let more = format!("X-Wait: 1\r\nContent-Length: {bytes}\r\n");
    writer.send(&stack.head("PUT", "/orders/upload", &more));
    let mut handle = writer.handle();
    let writing = std::thread::spawn(move || handle.write_all(&vec![b'x'; bytes]));
    wait::until("the request", || !service.heads().is_empty());
    let memory = sidecar.process().resident_kib();
    assert!(
        !writing.is_finished(),
        "64 MiB went somewhere: {memory:?} KiB"
    );
    service.go_on();
    assert_eq!(writer.response("PUT").text(), bytes.to_string());
    writing.join().unwrap().unwrap();
}

#[test]
fn a_rejection_reaches_a_client_that_is_still_sending() {
    let service = StreamingService::start();
    let stack = ForgedStack::before(&service.url(), &[]);
    for chunked in [false, true] {
        let mut client = RawClient::connect(stack.sidecar.address());
        let framing = if chunked {
            "Transfer-Encoding: chunked"
        } else {
            "Content-Length: 2000000"
        };
        client.send(
            format!("POST /orders/upload HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes(),
        );
        if chunked {
            client.send(b"10000\r\n");
        }
        client.send(&[b'x'; 60_000]);
        assert_eq!(client.response("POST").verdict(), "401 token_missing");
    }
    assert!(service.heads().is_empty());
}

/// And a short one, which the sidecar still holds: the pace ends both.
#[test]
fn a_long_body_that_drips_is_ended() {
    let service = StreamingService::start();
    let stack = ForgedStack::before(&service.url(), &["--request-body-timeout", "0"]);
    let mut short = RawClient::connect(stack.sidecar.address());
    short.send(&stack.head("POST", "/orders/upload", "Content-Length: 60000\r\n"));
    let mut handle = short.handle();
    let dripping = std::thread::spawn(move || {
        while handle.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let mut long = RawClient::connect(stack.sidecar.address());
    long.send(&stack.head("POST", "/orders/upload", "Content-Length: 100000\r\n"));
    long.send(&[b'1'; 70_000]);
    wait::until("the begin of the body", || service.received() > 60_000);
    for client in [&mut short, &mut long] {
        assert_eq!(client.response("POST").verdict(), "408 request_timeout");
    }
    drop(short);
    dripping.join().unwrap();
    service.wait_for_broken_off(1);
    assert_eq!(service.heads().len(), 1);
}

/// Bytes of a body of HTTP/1.1 that would never end, one by one.
const DRIPS: [(&str, &[u8], &[u8]); 4] = [
    ("data", b"", b"1\r\nx\r\n"),
    ("an extension", b"1;", b"x"),
    ("the digits of a size", b"", b"0"),
    ("trailers", b"1\r\nx\r\n0\r\nX-A: ", b"x"),
];

/// Sends `begin`, and then `item` again and again until the connection is closed.
fn drip(client: &mut RawClient, begin: &[u8], item: &'static [u8]) -> std::thread::JoinHandle<()> {
    client.send(begin);
    let mut handle = client.handle();
    std::thread::spawn(move || {
        while handle.write_all(item).is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    })
}

/// The framing is no body: its silence has a time. The data of a user may last as long as a stream.
#[test]
fn a_body_without_a_length_drips_until_its_token_ends() {
    let service = StreamingService::start();
    let flags = ["--request-body-timeout", "2", "--leeway", "0"];
    let stack = ForgedStack::before(&service.url(), &flags);
    let now = clock::now();
    let short = stack.forge.token(now, &json!({"exp": now + 4}));
    let begin = |token: &str| {
        let mut client = RawClient::connect(stack.sidecar.address());
        let chunked = "Transfer-Encoding: chunked\r\n";
        client.send(&head_with_token("POST", "/orders/upload", token, chunked));
        client
    };
    let mut lasting = begin(&stack.token());
    let (stop, stopped) = channel::<()>();
    let mut handle = lasting.handle();
    let going_on = std::thread::spawn(move || {
        while stopped.try_recv().is_err() {
            handle.write_all(b"1\r\nx\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
        handle.write_all(b"0\r\n\r\n").unwrap();
    });
    let mut ended = Vec::new();
    for (what, first, item) in DRIPS {
        let token = match what {
            "data" => &short,
            _ => &stack.token(),
        };
        let mut client = begin(token);
        let dripping = drip(&mut client, first, item);
        ended.push((what, client, dripping));
    }
    let over_http_2 = H2Client::connect(stack.sidecar.address());
    let bearer = format!("Bearer {short}");
    let fields = [("authorization", bearer.as_str())];
    let mut stream = over_http_2.open(over_http_2.request("POST", "/orders/upload", &fields));
    wait::until("the stream to end", || stream.write(b"x").is_err());
    assert_eq!(stream.head().unwrap().status(), 408);
    for (what, mut client, dripping) in ended {
        assert_eq!(
            client.response("POST").verdict(),
            "408 request_timeout",
            "{what}"
        );
        drop(client);
        dripping.join().unwrap();
    }
    stop.send(()).unwrap();
    going_on.join().unwrap();
    assert_eq!(lasting.response("POST").status(), 200);
}

#[test]
fn a_call_without_a_token_that_drips_ends() {
    let service = H2Service::start();
    let flags = ["--public-path=/public/**", "--request-body-timeout", "1"];
    let stack = ForgedStack::before(&service.url(), &flags);
    let client = H2Client::connect(stack.sidecar.address());
    let fields = [("content-type", "application/grpc")];
    let mut call = client.open(client.request("POST", "/orders/public/silent", &fields));
    // Many parts that a service has not read would end its connection.
    wait::until("the call to end", || {
        std::thread::sleep(Duration::from_millis(200));
        call.write(b"x").is_err()
    });
    let head = call.head().unwrap();
    let message = head.headers()["grpc-message"].to_str().unwrap();
    assert!(message.starts_with("request_timeout"), "{message}");
}

/// Workers of a service that serves one request at a time with each.
const WORKERS: usize = 4;
const SLOW: usize = 40;

/// Starts a service of [`WORKERS`], each of which reads a request to its end and closes.
fn service_of_workers() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for _ in 0..WORKERS {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let mut reader = BufReader::new(connection.try_clone().unwrap());
                if let Ok(Some(_)) = Message::read_request(&mut reader) {
                    let fields = [&*format!("{MARK}: 1"), "Connection: close"];
                    let _ = connection.write_all(&response("200 OK", &fields, b"echo"));
                }
            }
        });
    }
    url
}

#[test]
fn slow_bodies_occupy_no_worker_of_the_service() {
    let stack = ForgedStack::before(&service_of_workers(), &["--public-path", "/public/**"]);
    let bearer = format!("Authorization: Bearer {}\r\n", stack.token());
    let begun = |index: usize| {
        let (framing, part): (_, &[u8]) = match index % 5 {
            0 => ("Content-Length: 100", b"1"),
            1 => ("Transfer-Encoding: chunked", b"64\r\n1"),
            2 => ("Content-Length: 1000000", b"1"),
            3 => ("Expect: 100-continue\r\nContent-Length: 100", b""),
            _ => ("Content-Length: 65536", &[b'1'; 65_535]),
        };
        let token = if index % 10 < 5 || [1, 3].contains(&(index % 5)) {
            ""
        } else {
            &*bearer
        };
        let mut client = RawClient::connect(stack.sidecar.address());
        let head = format!("POST /orders/public/x HTTP/1.1\r\nHost: a\r\n{token}{framing}\r\n\r\n");
        client.send(&[head.as_bytes(), part].concat());
        client
    };
    let slow: Vec<_> = (0..SLOW).map(begun).collect();
    let over_http_2 = H2Client::connect(stack.sidecar.address());
    let _streams: Vec<_> = (0..WORKERS)
        .map(|_| {
            let mut stream = over_http_2.open(over_http_2.request("POST", "/orders/public/x", &[]));
            stream.write(b"1").unwrap();
            stream
        })
        .collect();
    stack
        .sidecar
        .until_in_flight(u64::try_from(SLOW + WORKERS).unwrap());
    let client = stack.sidecar.bearing(&stack.token());
    for _ in 0..2 * SLOW {
        assert_eq!(client.status("/list"), 200);
    }
    // The others may have come too slowly by now.
    let mut last = begun(0);
    last.send(&[b'2'; 99]);
    assert_eq!(last.response("POST").status(), 200);
    drop(slow);
}

#[test]
fn a_client_that_takes_nothing_of_a_response_is_not_awaited() {
    let service = StreamingService::start();
    let stack = ForgedStack::before(&service.url(), &["--downstream-write-timeout", "1"]);
    let mut silent = RawClient::connect(stack.sidecar.address());
    silent.send(&stack.head("GET", "/orders/endless", ""));
    service.wait_for_broken_off(1);
    let silent = H2Client::connect(stack.sidecar.address());
    let bearer = format!("Bearer {}", stack.token());
    let fields = [("authorization", bearer.as_str())];
    let mut stream = silent.open(silent.request("GET", "/orders/endless", &fields));
    stream.finish().unwrap();
    service.wait_for_broken_off(2);
}
