//! The scripted client, and the probes that use what a cut has left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

use super::cut::{Direction, Kind};
use super::exchange::{Exchange, Side, Version};
use super::part::{Ending, Part};
use super::reading::{Http1Reader, Http2Reader, Reader, Reading};
use super::script::{Script, Step, opening, script};
use super::world::{Case, World};

/// An exchange as its client saw it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) reading: Reading,
    pub(super) ending: Ending,
    /// Bytes of the request that were sent, and all of them.
    pub(super) sent: usize,
    pub(super) length: usize,
    /// The length of the request up to the end of its head.
    pub(super) head: usize,
    /// The length of what came back.
    pub(super) received: usize,
}

/// The clients of one sidecar.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) world: Arc<World>,
    pub(super) sidecar: SocketAddr,
    /// The version of the service.
    pub(super) service: Version,
}

impl Clients {
    /// Plays a case and the probes behind it.
    pub(super) async fn run(&self, case: &Arc<Case>) -> Seen {
        let seen = match case.exchange.client {
            Version::Http2 => self.run_http_2(case).await,
            _ => self.run_http_1(case).await,
        };
        self.probe_what_is_kept(case).await;
        seen
    }

    async fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.sidecar)
            .await
            .expect("a connection");
        let _ = socket.set_nodelay(true);
        socket
    }

    fn probe(&self, client: Version) -> Arc<Exchange> {
        self.world.probe(client, self.service)
    }

    fn script(&self, case: &Case) -> Script {
        script(&case.exchange, Side::Client, self.world.names(case), 1)
    }

    async fn run_http_1(&self, case: &Arc<Case>) -> Seen {
        let mut socket = self.connect().await;
        let script = self.script(case);
        let mut reader = Http1Reader::for_response(case.exchange.method());
        let mut part = Part::new(Side::Client, &script, &case.cuts, 0);
        if case.exchange.opens_tunnel() {
            part = part.in_tunnel(case.exchange.data(Side::Service, &case.mark).len());
        }
        let next = self
            .world
            .begin_for(case.user, &self.probe(Version::Http11), &[]);
        part.next = self.script(&next).steps[0].bytes.clone();
        let ending = part.play(&mut socket, &mut reader).await;
        let (sent, glued, received) = (part.sent, part.glued, reader.received());
        let seen = Seen {
            reading: reader.next(Some("GET")),
            ending,
            sent,
            length: script.length(),
            head: script.head,
            received,
        };
        let stays = ending == Ending::Done && seen.reading.is_whole();
        if stays && !case.exchange.opens_tunnel() && !has_late_surplus(case) {
            self.probe_connection(case, &seen, &next, socket, &mut reader, glued)
                .await;
        }
        seen
    }

    /// Sends a request on the connection of the exchange, or waits for its end.
    async fn probe_connection(
        &self,
        case: &Case,
        seen: &Seen,
        next: &Case,
        mut socket: TcpStream,
        reader: &mut Http1Reader,
        glued: usize,
    ) {
        let script = self.script(next);
        let is_cut_short = seen.sent < seen.length;
        let has_surplus = case.cuts.iter().any(|cut| {
            cut.direction.side() == Side::Client && matches!(cut.kind, Kind::Surplus(..))
        });
        // Behind a message that is not whole nothing is sent: the connection has to end by itself.
        let rest = match is_cut_short || has_surplus {
            true => Script {
                steps: Vec::new(),
                ..script
            },
            false => Script {
                steps: vec![Step {
                    bytes: script.steps[0].bytes[glued..].to_vec(),
                    ..script.steps[0].clone()
                }],
                ..script
            },
        };
        let mut part = Part::new(Side::Client, &rest, &[], 0);
        let ending = part.play(&mut socket, reader).await;
        let reading = reader.reading();
        let is_expected = match (is_cut_short || has_surplus, ending) {
            (true, Ending::Left) => reading.heads.is_empty() || has_surplus,
            // A rejection of the surplus.
            (true, Ending::Done) => {
                has_surplus && reading.head().is_some_and(|head| head.status == 400)
            }
            (false, Ending::Done) => is_own(reading, next).is_none(),
            (false, Ending::Left) => reading.heads.is_empty() && !keeps(&seen.reading, case),
            _ => false,
        };
        if !is_expected {
            let why = is_own(reading, next).unwrap_or_default();
            case.breaks(format!(
                "the next request on its connection: {ending:?} {why} {reading:?}"
            ));
        }
    }

    async fn run_http_2(&self, case: &Arc<Case>) -> Seen {
        let mut socket = self.connect().await;
        let mut script = self.script(case);
        let opening = opening(Side::Client);
        let head = opening.len() + script.head;
        script.steps.insert(
            0,
            Step {
                bytes: opening,
                need: super::script::Need::default(),
            },
        );
        let mut reader = Http2Reader::for_responses();
        let mut part = Part::new(Side::Client, &script, &case.cuts, 1);
        let ending = part.play(&mut socket, &mut reader).await;
        let seen = Seen {
            reading: reader.reading().clone(),
            ending,
            sent: part.sent,
            length: script.length(),
            head,
            received: reader.received(),
        };
        // A reset of a stream that has not begun is an error of the connection.
        let has_begun = seen.sent >= seen.head;
        if ending == Ending::Done && has_begun && !reader.has_goaway && !has_late_surplus(case) {
            self.probe_stream(case, &mut socket, &mut reader, &script, seen.sent)
                .await;
        }
        seen
    }

    /// Opens another stream on the connection, if the last frame was sent whole.
    async fn probe_stream(
        &self,
        case: &Case,
        socket: &mut TcpStream,
        reader: &mut Http2Reader,
        script: &Script,
        sent: usize,
    ) {
        let mut ends = script.steps.iter().scan(0, |end, step| {
            *end += step.bytes.len();
            Some(*end)
        });
        let is_half_closed = case
            .cuts
            .iter()
            .any(|cut| cut.direction.side() == Side::Client && cut.kind == Kind::HalfClose);
        if !ends.any(|end| end == sent) || is_half_closed {
            return;
        }
        let probe = self.probe(Version::Http2);
        let next = self.world.begin_for(case.user, &probe, &[]);
        let script = super::script::script(&probe, Side::Client, self.world.names(&next), 3);
        reader.turn_to(3);
        let ending = Part::new(Side::Client, &script, &[], 3)
            .play(socket, reader)
            .await;
        if let Some(why) = is_own(reader.reading(), &next) {
            case.breaks(format!(
                "the next stream of its connection: {ending:?} {why}"
            ));
        }
    }

    /// Sends requests of the same user and of another one, which get the connections to the service that
    /// were kept.
    async fn probe_what_is_kept(&self, case: &Arc<Case>) {
        let has_late_surplus = has_late_surplus(case);
        let mut may_be_hit = case.cuts.iter().any(|cut| {
            cut.direction == Direction::Response && matches!(cut.kind, Kind::Surplus(_, 1..))
        });
        let mut connection = self.connection().await;
        let users: &[usize] = match has_late_surplus {
            true => &[1, 3, 5, 7, 9],
            // Another one gets such a connection only after a rest.
            false if case.user.is_multiple_of(8) => &[0, 1],
            false => &[0],
        };
        for other in users {
            if let Some(why) = self.request(&mut connection, case.user + other).await {
                // One that was on its way when the surplus came, in a moment of its own; no further one.
                if !std::mem::take(&mut may_be_hit) {
                    case.breaks(format!("a later request of user +{other}: {why}"));
                    return;
                }
                connection = self.connection().await;
            }
            if has_late_surplus {
                sleep(Duration::from_millis(8)).await;
            }
        }
    }

    async fn connection(&self) -> (TcpStream, Http1Reader) {
        let socket = self.connect().await;
        // It ends with a reset, behind which neither the kernel nor a firewall keeps it for minutes.
        let _ = socket.set_zero_linger();
        (socket, Http1Reader::for_response("GET"))
    }

    /// Sends a request of a user; returns why the response is not its own.
    async fn request(
        &self,
        (socket, reader): &mut (TcpStream, Http1Reader),
        user: usize,
    ) -> Option<String> {
        let exchange = self.probe(Version::Http11);
        let probe = self.world.begin_for(user, &exchange, &[]);
        let script = self.script(&probe);
        let mut part = Part::new(Side::Client, &script, &[], 0);
        let ending = part.play(socket, reader).await;
        let reading = reader.next(Some("GET"));
        let why = is_own(&reading, &probe)?;
        Some(format!("{ending:?} {why} {reading:?} of {}", probe.mark))
    }
}

/// Returns true for surplus of the service, which may reach the user that has caused it.
fn has_late_surplus(case: &Case) -> bool {
    let mut cuts = case.cuts.iter();
    cuts.any(|cut| cut.direction == Direction::Response && matches!(cut.kind, Kind::Surplus(..)))
}

/// Returns true if the connection stays behind this response, as it says.
fn keeps(reading: &Reading, case: &Case) -> bool {
    let has_cut = case.cuts.iter().any(|cut| !cut.kind.is_harmless());
    let options = reading
        .head()
        .map(|head| head.values("connection"))
        .unwrap_or_default();
    options.contains(&"keep-alive") && !has_cut
}

/// Returns why a response is not the own one of a probe.
fn is_own(reading: &Reading, probe: &Case) -> Option<String> {
    let data = probe.exchange.data(Side::Service, &probe.mark);
    let marks = reading
        .head()
        .map(|head| head.values("x-mark"))
        .unwrap_or_default();
    if !reading.is_whole() {
        return Some(format!("no whole response: {:?}", reading.end));
    }
    (marks != [&*probe.mark] || reading.data != data.as_bytes())
        .then(|| format!("not its own response {}", probe.mark))
}
