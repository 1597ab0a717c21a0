//! A connection: its limits, its streams and its end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use http::Request;
use postern_contract::rejection::Rejection;
use postern_transport::drain::{DrainWatcher, Phase};
use postern_transport::net::connection_slots::{Activity, OpenStream};
use postern_transport::net::listener::CLIENT_IDLE;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::body::RequestBody;
use super::downstream::Http2Downstream;
use super::transport::FollowedTransport;
use crate::downstream::transport::ClientTransport;
use crate::exchange::Exchanges;
use crate::exchange::record::UnparsedResponse::NotSent;
use crate::identity::client::Client;
use postern_http::request::http2::LIBRARY_MAX_HEAD_BYTES;
use postern_http::request::received::ReceivedHead;

/// Bytes that wait for a client that does not read, for each stream: the library's default is 400
/// KiB, for each of a hundred streams on a connection.
const SEND_BYTES: usize = 64 * 1024;
/// The usual limit of HTTP/2 servers.
const STREAMS: u32 = 100;
/// Bytes of one body that a client may send before the service has read it (RFC 9113 §6.9.2).
const STREAM_WINDOW: u32 = 65_535;

/// A connection that begins with the preface of HTTP/2.
pub(crate) struct NewConnection {
    pub(crate) transport: ClientTransport,
    pub(crate) activity: Activity,
    /// The preface, and the bytes that came with it.
    pub(crate) received: BytesMut,
}

/// Serves the streams of a connection to their end, and sends a GOAWAY in a drain or as `goodbye`.
pub(crate) async fn serve(
    exchanges: &Arc<Exchanges>,
    connection: NewConnection,
    client: Client,
    goodbye: &Notify,
    drain: DrainWatcher,
) {
    let activity = connection.activity;
    activity.speaks_http_2();
    let (reporter, address) = (Arc::clone(exchanges), client.address);
    let report = move || reporter.report_unparsed(Rejection::RequestMalformed, address, NotSent);
    let transport = FollowedTransport::new(
        connection.transport,
        connection.received,
        activity.clone(),
        Box::new(report),
    );
    // The handshake waits for nothing: the preface is here.
    let Ok(connection) = builder().handshake(transport).await else {
        return;
    };
    let client = Arc::new(client);
    let mut streams = Streams {
        connection,
        running: TaskTracker::new(),
        goodbye,
        drain,
        leaves_in: Phase::Closing,
        is_leaving: false,
    };
    // A closed tracker can be waited for, and still takes streams.
    streams.running.close();
    while let Some(all) = streams.next().await {
        for begun in all {
            let (exchanges, client) = (Arc::clone(exchanges), Arc::clone(&client));
            let served = serve_stream(exchanges, begun, client, activity.stream());
            streams.running.spawn(served);
        }
    }
    // The drop ends the streams that are left, whose tasks would wait for their clients.
    drop(streams.connection);
    // The wait lets each request be recorded: the process may end with its last connection.
    streams.running.wait().await;
}

async fn serve_stream(
    exchanges: Arc<Exchanges>,
    (request, response): Begun,
    client: Arc<Client>,
    open: OpenStream,
) {
    let (parts, body) = request.into_parts();
    let head = ReceivedHead::from_stream(parts, !body.is_end_stream());
    let body = Arc::new(RequestBody::new(body));
    let timeout = exchanges.app.downstream_write_timeout;
    let mut downstream = Http2Downstream::new(Arc::clone(&body), response, timeout);
    tokio::select! {
        // In this order: what the exchange takes itself is not copied.
        biased;
        _ = exchanges.serve(head, &mut downstream, &client) => {}
        never = poll_fn(|cx| body.poll_take_in(cx)) => match never {},
    }
    // In this order: the connection is busy until the response has its end or its reset.
    drop((downstream, body, open));
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_header_list_size(LIBRARY_MAX_HEAD_BYTES)
        .max_send_buffer_size(SEND_BYTES)
        .max_concurrent_streams(STREAMS)
        .initial_window_size(STREAM_WINDOW)
        // No bound of the library for small frames, which would end the connection with all streams: those of a turn
        // are taken out of it before the next one, and it never stops counting those of a stream that was reset.
        .data_frame_budget(usize::MAX)
        // One body that the service does not read must not stop the others on the connection.
        .initial_connection_window_size(STREAMS * STREAM_WINDOW);
    builder
}

/// A stream with its head.
type Begun = (Request<RecvStream>, SendResponse<Bytes>);

/// The streams of a connection.
struct Streams<'c> {
    connection: Connection<FollowedTransport, Bytes>,
    running: TaskTracker,
    goodbye: &'c Notify,
    drain: DrainWatcher,
    /// The phase in which the client has to go elsewhere. A new connection serves a stream first, as in
    /// HTTP/1.x: its client may know no other address yet, and would only come again.
    leaves_in: Phase,
    /// True once the client has to go elsewhere.
    is_leaving: bool,
}

impl Streams<'_> {
    /// Waits for the next streams; returns `None` once no other follows.
    async fn next(&mut self) -> Option<Vec<Begun>> {
        loop {
            tokio::select! {
                // `biased`: a busy connection, whose `accept` is always ready, has to leave too.
                biased;
                () = leave(&mut self.drain, self.leaves_in, self.goodbye, &self.running),
                    if !self.is_leaving =>
                {
                    self.is_leaving = true;
                    // The next `accept` sends the GOAWAY and still takes streams that are on their way.
                    self.connection.graceful_shutdown();
                }
                begun = poll_fn(|cx| poll_begun(&mut self.connection, cx)) => {
                    self.leaves_in = Phase::Draining;
                    return begun;
                }
                // A client may keep the connection open after the GOAWAY.
                () = idle(&self.running), if self.is_leaving => return None,
            }
        }
    }
}

/// Accepts all streams of a turn: those that are left would wait in memory for the next one.
fn poll_begun(
    connection: &mut Connection<FollowedTransport, Bytes>,
    cx: &mut Context<'_>,
) -> Poll<Option<Vec<Begun>>> {
    let mut all = Vec::new();
    loop {
        match connection.poll_accept(cx) {
            Poll::Ready(Some(Ok(begun))) => all.push(begun),
            _ if !all.is_empty() => return Poll::Ready(Some(all)),
            // `None` comes after the last stream; an error is an error of the whole connection.
            Poll::Ready(_) => return Poll::Ready(None),
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Waits until the client has to go elsewhere. An idle connection is left with a GOAWAY too, without which a
/// request on its way would be lost (RFC 9113 §9.1).
async fn leave(drain: &mut DrainWatcher, phase: Phase, goodbye: &Notify, streams: &TaskTracker) {
    tokio::select! {
        () = drain.reached(phase) => {}
        () = goodbye.notified() => {}
        () = idle(streams) => {}
    }
}

/// Completes once no stream was served for a while.
async fn idle(streams: &TaskTracker) {
    streams.wait().await;
    tokio::time::sleep(CLIENT_IDLE).await;
}
