//! Behaviour of real sockets: error responses of hyper, rejected uploads, and the shutdown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::net::SocketAddr;

use axum::routing::{get, post};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::net::connection_slots::ConnectionSlots;
use crate::net::listener::Port;

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

async fn running(request_timeout: Duration) -> Running {
    running_with(request_timeout, Shares::new(1024 * 1024)).await
}

async fn running_with(request_timeout: Duration, unfinished: Shares) -> Running {
    let router = Router::new()
        .route("/ok", get("fine"))
        .route("/echo", post(async |body: String| body))
        .route("/large", get(async || vec![b'x'; LARGE]))
        .route("/rejects", post(StatusCode::PAYLOAD_TOO_LARGE));
    let listener = listener::bind(Port::Public, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    let port = HttpPort {
        keep_alive: true,
        is_busy_with_requests: true,
        drain_timeout: LONG,
        unfinished,
        reject: Arc::new(|invalid, _| {
            let (status, reason) = (invalid.status(), format!("{invalid:?}"));
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}", reason.len());
            format!("{head}\r\nconnection: close\r\n\r\n{reason}").into_bytes()
        }),
        ..HttpPort::new("a port", router, request_timeout)
    };
    let server = tokio::spawn(async move {
        let slots = ConnectionSlots::new("a port", SLOTS);
        let served = port.serve(listener, |peer| slots.take(peer, false), stopped);
        served.await.unwrap();
    });
    Running {
        address,
        stop,
        server,
    }
}

const SLOTS: usize = 5;
/// The share of one client.
const FOUR_FIFTHS: usize = 4;

/// Larger than the buffers of both sockets.
const LARGE: usize = 32 * 1024 * 1024;

const LONG: Duration = Duration::from_secs(30);

const CLOSING: &[u8] = b"GET /ok HTTP/1.1\r\nConnection: close\r\n\r\n";

/// Sends everything, then reads to the end.
async fn exchange(server: &Running, sent: &[u8]) -> String {
    try_exchange(server, sent).await.unwrap()
}

async fn try_exchange(server: &Running, sent: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(server.address).await?;
    stream.write_all(sent).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

#[tokio::test]
async fn what_is_no_request_gets_the_response_of_the_program() {
    let server = running(LONG).await;
    let oversize = format!(
        "GET /ok HTTP/1.1\r\nAuthorization: Bearer {}\r\n\r\n",
        "a".repeat(400_000)
    );
    let crowded = format!("GET /ok HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(70_000));
    let (malformed, framing) = ("Malformed", "Framing");
    let too_large = "HeaderTooLarge";
    for (sent, status, reason) in [
        ("\0\r\n\r\n", 400, malformed),
        ("GET /ok HTTP/1.1\r\nA B: c\r\n\r\n", 400, malformed),
        (
            "POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            400,
            framing,
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, malformed),
        (&oversize, 431, too_large),
        (&crowded, 431, too_large),
        (&long, 431, too_large),
    ] {
        let response = exchange(&server, sent.as_bytes()).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{sent:.60}: {response}"
        );
        assert!(response.ends_with(reason), "{response}");
        // The response before it stays whole.
        let behind = format!("GET /ok HTTP/1.1\r\n\r\n{sent}");
        let both = exchange(&server, behind.as_bytes()).await;
        assert!(both.starts_with("HTTP/1.1 200 OK\r\n"), "{both}");
        let rejected = format!("fineHTTP/1.1 {status} ");
        assert!(both.contains(&rejected), "{sent:.60}: {both}");
    }
}

#[tokio::test]
async fn lesson_c24_what_a_proxy_could_read_differently_is_rejected() {
    let server = running(LONG).await;
    // Of the table of the framing.
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content_Length: 4\r\n",
        "Content-Length: 4\n",
    ] {
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let response = exchange(&server, format!("{head}0\r\n\r\n").as_bytes()).await;
        assert!(
            response.starts_with("HTTP/1.1 400 "),
            "{fields}: {response}"
        );
        assert!(response.contains("Framing"), "{fields}: {response}");

        // In its turn, and after a part of it was read.
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let (begin, end) = head.split_at(20);
        let before = "POST /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\n\nabc";
        stream
            .write_all(format!("{before}{begin}").as_bytes())
            .await
            .unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK", "{fields}");
        stream.write_all(end.as_bytes()).await.unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        let rejected = rest.split_once("\nabcHTTP/1.1 400 ").unwrap();
        assert!(rejected.1.contains("Framing"), "{rest}");
        assert_eq!(rest.matches("HTTP/1.1").count(), 1, "{rest}");
    }
}

const IN_CHUNKS: &str = "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn lesson_c24_chunks_that_proxies_count_apart_are_rejected() {
    let server = running(LONG).await;
    let next = "GET /ok HTTP/1.1\r\n\r\n";
    for chunks in ["2;\nxx\r\n4\r\n0\r\n\r\n", "4\r\necho\r\n0\r\n\nxx"] {
        let sent = format!("{IN_CHUNKS}{chunks}{next}");
        let response = exchange(&server, sent.as_bytes()).await;
        assert!(
            response.starts_with("HTTP/1.1 400 "),
            "{chunks:?}: {response}"
        );
        let found = response.matches("HTTP/1.1").count();
        assert_eq!(found, 1, "{chunks:?}: {response}");
    }
}

#[tokio::test]
async fn between_requests_a_client_may_be_silent_not_within_a_head() {
    let timeout = Duration::from_millis(400);
    let server = running(timeout).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let mut responses = Vec::new();
    for pause in [timeout + timeout / 4, Duration::ZERO] {
        stream.write_all(b"GET /ok HTTP/1.1\r\n\r\n").await.unwrap();
        while !responses.ends_with(b"fine") {
            assert_ne!(stream.read_buf(&mut responses).await.unwrap(), 0);
        }
        responses.clear();
        tokio::time::sleep(pause).await;
    }
    stream.write_all(b"GET /ok HT").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.starts_with("HTTP/1.1 408 "), "{rest}");
    assert!(rest.contains("Timeout"), "{rest}");
    assert_eq!(exchange(&server, b"").await, "");
}

#[tokio::test]
async fn a_client_that_is_still_sending_can_read_the_rejection() {
    let server = running(LONG).await;
    for _ in 0..20 {
        let mut upload = b"POST /rejects HTTP/1.1\r\nContent-Length: 4194304\r\n\r\n".to_vec();
        upload.resize(upload.len() + 4_194_304, b'x');
        let response = exchange(&server, &upload).await;
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    }
}

#[tokio::test]
async fn at_the_end_requests_are_finished_and_idle_ones_closed() {
    let server = running(LONG).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /ok HTTP/1.1\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    idle.read_exact(&mut first).await.unwrap();
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    busy.write_all(b"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await
        .unwrap();
    // The server has begun to read the body once it sends this.
    let mut proceed = [0; 25];
    busy.read_exact(&mut proceed).await.unwrap();
    assert_eq!(&proceed, b"HTTP/1.1 100 Continue\r\n\r\n");

    server.stop.send(()).unwrap();
    let mut rest = String::new();
    idle.read_to_string(&mut rest).await.unwrap();
    drop(idle);
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "it still accepts"
    );
    busy.write_all(b"echo").await.unwrap();
    let mut response = String::new();
    busy.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("echo"), "{response}");
    drop(busy);
    server.server.await.unwrap();
}

#[tokio::test]
async fn heads_that_wait_for_their_end_share_one_budget() {
    let budget = Shares::new(36 * 1024);
    let server = running_with(LONG, budget.clone()).await;
    let half = format!("GET /ok HTTP/1.1\r\nA: {}", "a".repeat(10_000));
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(half.as_bytes()).await.unwrap();
    while budget.free() > 20_000 {
        tokio::task::yield_now().await;
    }
    let rejected = exchange(&server, half.as_bytes()).await;
    assert!(rejected.starts_with("HTTP/1.1 503 "), "{rejected}");
    assert!(rejected.contains("MemoryExhausted"), "{rejected}");
    let whole = exchange(&server, CLOSING).await;
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{whole}");

    slow.write_all(b"\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut response = String::new();
    slow.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    while budget.free() < 36 * 1024 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn slow_clients_that_fill_the_budget_keep_no_newcomer_out() {
    let budget = Shares::new(1_000);
    let mut slow = budget.nothing_for(Holder::for_address(None));
    assert!(slow.set(1_000));
    let server = running_with(LONG, budget).await;
    let mut newcomer = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /echo HTTP/1.1\r\nCookie: {}\r\nConnection: close\r\nContent-Length: 4\r\n\r\n",
        "c".repeat(900)
    );
    for piece in head.as_bytes().chunks(100).chain([b"ec".as_slice(), b"ho"]) {
        newcomer.write_all(piece).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut response = String::new();
    newcomer.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_slots() {
    let server = running(Duration::from_millis(200)).await;
    let mut deaf = Vec::new();
    for _ in 0..FOUR_FIFTHS {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream
            .write_all(&b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50))
            .await
            .unwrap();
        deaf.push(stream);
    }
    let served = async {
        loop {
            let response = try_exchange(&server, CLOSING).await.unwrap_or_default();
            if response.starts_with("HTTP/1.1 200 OK\r\n") {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, served).await.unwrap();
}
