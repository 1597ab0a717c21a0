//! The scripted service: it finds the case of each request by its mark, and plays its part.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::cut::{Direction, Kind};
use super::exchange::{Piece, Side, Version};
use super::part::{Ending, Part};
use super::reading::{Http1Reader, Http2Reader, Reader};
use super::script::{After, GOAWAY, frame, opening, script};
use super::world::{Arrival, Case, World};

/// Time in which a request line arrives whole: the sidecar writes a head at once.
const LINE: Duration = Duration::from_secs(5);
/// The rest of a connection before it serves another user: `REST` of the sidecar's `pool.rs`.
const REST: Duration = Duration::from_millis(3);

/// Starts a service of this version, and returns its address.
pub(super) async fn start(world: &Arc<World>, version: Version) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("the address just bound");
    let world = Arc::clone(world);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let _ = socket.set_nodelay(true);
                match version {
                    Version::Http2 => serve_http_2(&world, socket).await,
                    _ => serve_http_1(&world, socket).await,
                };
            });
        }
    });
    address
}

/// The case that a connection has served last.
struct Last {
    case: Arc<Case>,
    has_surplus: bool,
    /// The begin of the last write of the response.
    written: Instant,
}

impl Last {
    /// Checks the law about a request of another user on the connection.
    fn check_next(&self, next: &Case) {
        let rested = self.written.elapsed();
        if self.case.user == next.user || (!self.has_surplus && rested >= REST) {
            return;
        }
        // The case that is checked: no law is checked of a probe.
        self.case.breaks(format!(
            "its connection serves another user after {rested:?} (surplus: {}): {}",
            self.has_surplus, next.mark
        ));
    }
}

async fn serve_http_1(world: &World, mut socket: TcpStream) -> Option<()> {
    let mut reader = Http1Reader::for_requests();
    let mut last: Option<Last> = None;
    loop {
        // The next request may be here already, behind a body that was read late.
        let case = match next_case(world, &socket, reader.surplus()).await? {
            Ok(case) => case,
            Err(why) => {
                match &last {
                    Some(last) => last.case.breaks(why),
                    None => world.breaks(why),
                }
                return None;
            }
        };
        if let Some(last) = last.take() {
            last.check_next(&case);
        }
        reader.next(None);
        let written = play(world, &case, &mut socket, &mut reader, 0).await?;
        // Later, it comes in a moment of its own, and the connection may be in use again.
        let is_surplus = |kind: Kind| matches!(kind, Kind::Surplus(_, 0));
        let of_service = |direction: Direction| direction.side() == Side::Service;
        let has_surplus = case
            .cuts
            .iter()
            .any(|cut| of_service(cut.direction) && is_surplus(cut.kind));
        last = Some(Last {
            case,
            has_surplus,
            written,
        });
    }
}

async fn serve_http_2(world: &World, mut socket: TcpStream) -> Option<()> {
    let mut reader = Http2Reader::for_requests();
    socket.write_all(&opening(Side::Service)).await.ok()?;
    loop {
        let stream = next_stream(&mut socket, &mut reader).await?;
        reader.turn_to(stream);
        let line = reader.reading().heads.first().map(|head| head.line.clone());
        let line = line.unwrap_or_default();
        let mark = line.rsplit_once("/c/").map_or("", |(_, mark)| mark);
        let Some(case) = world.case(mark) else {
            world.breaks(format!("a request of no case: {line:?}"));
            return None;
        };
        play(world, &case, &mut socket, &mut reader, stream).await?;
    }
}

async fn next_stream(socket: &mut TcpStream, reader: &mut Http2Reader) -> Option<u32> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if let Some(stream) = reader.later_stream() {
            return Some(stream);
        }
        match socket.read(&mut buffer).await {
            Ok(count) if count > 0 => reader.take(&buffer[..count]),
            _ => return None,
        }
    }
}

/// Plays the part of a case, and returns the begin of its last write; `None` once the connection is over.
async fn play(
    world: &World,
    case: &Arc<Case>,
    socket: &mut TcpStream,
    reader: &mut dyn Reader,
    stream: u32,
) -> Option<Instant> {
    let exchange = &case.exchange;
    let script = script(exchange, Side::Service, world.names(case), stream);
    let number = case.begin_try();
    // A second try meets no cut.
    let cuts = match number {
        0 => &*case.cuts,
        _ => &[],
    };
    let mut part = Part::new(Side::Service, &script, cuts, stream);
    if exchange.requests_tunnel() {
        part = part.in_tunnel(exchange.data(Side::Client, &case.mark).len());
    }
    // Silence within a frame stops the whole connection: no other request has to share it.
    let is_silent = stream > 0 && cuts.iter().any(|cut| cut.kind == Kind::Stall);
    if is_silent {
        let last = [stream.to_be_bytes(), [0; 4]].concat();
        socket.write_all(&frame(GOAWAY, 0, 0, &last)).await.ok()?;
    }
    let ending = part.play(socket, reader).await;
    case.arrived(Arrival {
        number,
        reading: reader.reading().clone(),
        sent: part.sent,
        has_sent_all: part.sent == script.length(),
        ending,
        received: reader.received(),
    });
    if ending != Ending::Done {
        return None;
    }
    let goes_away = |piece: &Piece| matches!(piece, Piece::GoAway);
    let is_last = is_silent || exchange.pieces(Side::Service).any(goes_away);
    match script.after {
        After::Stay if is_last => {
            // With frames unread, a close would be a reset and destroy the response.
            let _ = socket.shutdown().await;
            let _ = timeout(LINE, copy(socket, &mut sink())).await;
            None
        }
        After::Stay if !exchange.opens_tunnel() => Some(part.written),
        After::Reset => {
            let _ = socket.set_zero_linger();
            None
        }
        _ => None,
    }
}

/// Waits for a request that begins with `rest` and finds its case, before a byte of it is read: a cut may
/// stand at the first one.
async fn next_case(
    world: &World,
    socket: &TcpStream,
    rest: &[u8],
) -> Option<Result<Arc<Case>, String>> {
    let mut bytes = [0; 256];
    let mut count = 0;
    let mut until = None;
    loop {
        let begin = [rest, &bytes[..count]].concat();
        let text = String::from_utf8_lossy(&begin[..begin.len().min(bytes.len())]);
        let mark = text.split_once(" /c/").and_then(|(_, rest)| rest.get(..8));
        if let Some(case) = mark.and_then(|mark| world.case(mark)) {
            return Some(Ok(case));
        }
        if text.len() >= 64 || *until.get_or_insert_with(|| Instant::now() + LINE) < Instant::now()
        {
            return Some(Err(format!("the service got {text:?} for a request")));
        }
        if count > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        count = socket.peek(&mut bytes).await.unwrap_or(0);
        if count == 0 {
            // As the connections of probes.
            let _ = socket.set_zero_linger();
            return None;
        }
    }
}
