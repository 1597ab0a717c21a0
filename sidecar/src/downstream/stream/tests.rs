#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use pingora::protocols::Peek;
use tokio::io::DuplexStream;

use super::*;
use crate::downstream::head_limits::MAX_HEAD_BYTES;
use crate::downstream::transport;

#[derive(Debug)]
struct Ours;

impl RejectUnparsed for Ours {
    fn reject(&self, rejection: Rejection, _: Option<IpAddr>) -> Bytes {
        format!("our rejection: {rejection}").into()
    }

    fn on_rejected(&self, _: Rejection, _: Option<IpAddr>, _: bool) {}
}

fn connection(capacity: usize) -> (ClientStream, DuplexStream) {
    connection_with(capacity, Duration::from_secs(3600))
}

fn connection_with(capacity: usize, head_timeout: Duration) -> (ClientStream, DuplexStream) {
    let (transport, client) = tokio::io::duplex(capacity);
    let transport = ClientTransport::plain(transport::socket(Box::new(transport), None));
    let stream = ClientStream::new(transport, Arc::new(Ours), head_timeout, None);
    (stream, client)
}

async fn received(mut client: DuplexStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn the_connection_lingers_until_the_rejection_is_read() {
    let (mut stream, mut client) = connection(1024);
    stream.reject_head(Rejection::RequestMalformed);
    let closing = tokio::spawn(async move { Shutdown::shutdown(&mut stream).await });
    client.write_all(&[0; 100_000]).await.unwrap();
    assert!(!closing.is_finished());
    AsyncWriteExt::shutdown(&mut client).await.unwrap();
    assert_eq!(received(client).await, "our rejection: request_malformed");
    closing.await.unwrap();
}

#[tokio::test]
async fn a_slow_head_ends_the_stream_with_a_response() {
    let (mut stream, mut client) = connection_with(1024, Duration::from_millis(1));
    client.write_all(b"GET / HT").await.unwrap();
    let mut read = [0; 16];
    assert_eq!(stream.read(&mut read).await.unwrap(), 8);
    assert_eq!(stream.read(&mut read).await.unwrap(), 0);
    stream.flush().await.unwrap();
    drop(stream);
    assert_eq!(received(client).await, "our rejection: request_timeout");
}

#[tokio::test]
async fn the_head_timeout_covers_neither_handling_nor_silence() {
    let (mut stream, mut client) = connection_with(1024, Duration::from_millis(1));
    let mut read = [0; 32];
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(stream.read(&mut read).await.unwrap(), 18);
    for handling in [true, false] {
        stream.set_handling(handling);
        let limit = Duration::from_millis(50);
        let waiting = tokio::time::timeout(limit, stream.read(&mut read)).await;
        assert!(waiting.is_err(), "handling: {handling}");
    }
}

#[tokio::test]
async fn the_head_timeout_covers_half_a_head_behind_a_request() {
    let (mut stream, mut client) = connection_with(1024, Duration::from_millis(1));
    let mut read = [0; 32];
    client.write_all(b"GET / HTTP/1.1\r\n\r\nG").await.unwrap();
    assert_eq!(stream.read(&mut read).await.unwrap(), 19);
    stream.set_handling(true);
    stream.set_handling(false);
    assert_eq!(stream.read(&mut read).await.unwrap(), 0);
    stream.flush().await.unwrap();
    drop(stream);
    assert_eq!(received(client).await, "our rejection: request_timeout");
}

#[tokio::test]
async fn peeking_detects_the_protocol_and_loses_no_byte() {
    for (pieces, is_http_2) in [
        (&["GET / HTTP/1.0\r\n\r\n"][..], false),
        (&["P", "OST / HTTP/1.1\r\n"], false),
        (&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], true),
        (&["PRI * HT", "TP/2.0\r\n\r\nSM\r\n\r\nmore"], true),
        (&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r!"], false),
        (&["\r"], false),
        (&[], false),
    ] {
        let (mut stream, mut client) = connection(1024);
        let sent = pieces.concat();
        let sending = async move {
            for piece in pieces {
                client.write_all(piece.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let mut peeked = [0; 24];
        let (peek, ()) = tokio::join!(stream.try_peek(&mut peeked), sending);
        assert!(peek.unwrap());
        assert_eq!(peeked == HTTP_2_PREFACE, is_http_2, "{pieces:?}");
        let mut read = String::new();
        stream.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, sent);
    }
}

#[tokio::test]
async fn half_a_preface_times_out_like_a_head() {
    let (mut stream, mut client) = connection_with(1024, Duration::from_millis(1));
    client.write_all(b"PRI * ").await.unwrap();
    assert!(stream.try_peek(&mut [0; 24]).await.unwrap());
    stream.flush().await.unwrap();
    drop(stream);
    assert_eq!(received(client).await, "our rejection: request_timeout");
}

#[tokio::test]
async fn reading_stops_at_a_head_that_is_too_large() {
    let (mut stream, mut client) = connection(2 * MAX_HEAD_BYTES);
    client
        .write_all(&vec![b'a'; 2 * MAX_HEAD_BYTES])
        .await
        .unwrap();
    let mut read = vec![0; MAX_HEAD_BYTES + 1];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(stream.read(&mut read).await.unwrap(), 0);
    let sending = tokio::spawn(async move {
        stream.flush().await.unwrap();
        drop(stream);
    });
    assert_eq!(
        received(client).await,
        "our rejection: request_header_too_large"
    );
    sending.await.unwrap();
}

async fn is_silent(stream: &mut ClientStream) -> bool {
    let reading = stream.read_u8();
    tokio::time::timeout(Duration::from_secs(60), reading)
        .await
        .is_err()
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_request_waits_for_the_end_of_the_first() {
    const FIRST: &[u8] = b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n";
    let (mut stream, mut client) = connection(1024);
    let mut first = [0; FIRST.len()];
    client.write_all(FIRST).await.unwrap();
    stream.read_exact(&mut first).await.unwrap();
    stream.set_handling(true);
    client.write_all(b"xGET /next").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x', "of the body");
    assert!(is_silent(&mut stream).await);
    client.write_all(b" HTTP/1.1\r\n\r\n").await.unwrap();
    stream.set_handling(false);
    let mut next = [0; 22];
    stream.read_exact(&mut next).await.unwrap();
    assert_eq!(next, *b"GET /next HTTP/1.1\r\n\r\n");

    stream.set_handling(true);
    drop(client);
    assert_eq!(
        stream.read(&mut next).await.unwrap(),
        0,
        "closed by the client"
    );
}

#[tokio::test(start_paused = true)]
async fn bytes_sent_ahead_of_a_tunnel_go_through_it() {
    let (mut stream, mut client) = connection(1024);
    let request = b"GET / HTTP/1.1\r\n\r\n";
    client.write_all(request).await.unwrap();
    stream.read_exact(&mut [0; 18]).await.unwrap();
    stream.set_handling(true);
    client.write_all(b"early").await.unwrap();
    assert!(is_silent(&mut stream).await);
    stream.set_tunnel();
    client.write_all(b" and late").await.unwrap();
    let mut carried = [0; 14];
    stream.read_exact(&mut carried).await.unwrap();
    assert_eq!(carried, *b"early and late");
}
