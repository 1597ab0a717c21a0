//! The service behind: where it is, and how to connect to it.
//!
//! Every request's peer is cloned from a prototype: building one means parsing and resolving an
//! address. The prototypes are replaced when the name resolves to something else.

mod address;
mod dns_refresh;
pub(crate) mod errors;
pub(crate) mod exposure_check;
mod loop_check;
pub(crate) mod request;
pub(crate) mod response;
mod retry;
mod tls;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora::upstreams::peer::{H1UpgradePolicy, HttpPeer, Peer};
use tokio::sync::Notify;

use crate::request::kind::RequestKind;

pub(crate) use address::{Endpoint, Protocol, UpstreamAddress};
pub(crate) use dns_refresh::UpstreamNames;
pub(crate) use retry::{MAX_TRIES, Sent, Tries};
pub(crate) use tls::{TlsFiles, TlsFilesError, UpstreamTls};

/// Below the 5 s after which Node closes an idle connection: of the common servers it is the
/// quickest, and a POST on a connection that is just being closed fails.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// As many as most HTTP/2 servers allow; a service that allows fewer says so and is obeyed.
const MAX_STREAMS: u32 = 100;
/// What the service may send of one HTTP/2 answer before the client has taken it. Pingora's 8 MiB for each
/// stream and for all of them would let one client that does not read stop everybody else. Less would make more
/// calls stand still in which both sides send without reading.
const STREAM_WINDOW: u32 = 512 * 1024;
/// Sets a WebSocket's connections apart: they must not be HTTP/2, and Pingora's pool does not look
/// at that.
const WEBSOCKET_GROUP: u64 = 1;
/// Of connections that may not be used for each other's requests, for each generation of TLS.
const GROUPS: u64 = 2;

/// How long the service may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpstreamTimeouts {
    pub(crate) connect: Duration,
    /// For the answer's head and for each read of its body; `None` waits for ever.
    pub(crate) read: Option<Duration>,
}

/// What the flags say about the service.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamSettings {
    pub(crate) address: UpstreamAddress,
    pub(crate) timeouts: UpstreamTimeouts,
    /// With [`Protocol::Https`] only.
    pub(crate) tls: Option<UpstreamTls>,
}

/// How TLS is spoken with the service at the moment.
#[derive(Debug)]
struct CurrentTls {
    tls: Option<UpstreamTls>,
    /// Sets apart the connections that were opened with it.
    generation: u64,
}

/// Hands out peers. Shared by all requests.
#[derive(Debug)]
pub(crate) struct Upstream {
    settings: UpstreamSettings,
    /// Locked while prototypes are replaced, so that the last ones are made of the last TLS.
    tls: Mutex<CurrentTls>,
    /// One entry for each address; none as long as the name does not resolve.
    peers: ArcSwap<Vec<Prototypes>>,
    /// Which of them is in use.
    preferred: AtomicUsize,
    /// Told when an address does not answer: the name may lead elsewhere by now.
    lost: Notify,
}

#[derive(Debug)]
struct Prototypes {
    plain: HttpPeer,
    /// For what may be silent for long.
    stream: HttpPeer,
    websocket: HttpPeer,
}

impl Upstream {
    /// Resolves the address for the first time. A name that does not resolve yet is no error: the
    /// service may be started after its sidecar.
    ///
    /// # Errors
    /// A socket path that is longer than the system takes.
    pub(crate) fn new(mut settings: UpstreamSettings) -> Result<Self, String> {
        let tls = CurrentTls {
            tls: settings.tls.take(),
            generation: 0,
        };
        let prototypes = match &settings.address.endpoint {
            Endpoint::Unix(path) => {
                let peer = path
                    .to_str()
                    .and_then(|path| HttpPeer::new_uds(path, false, String::new()).ok())
                    .ok_or("the path cannot be that of a socket")?;
                vec![settings.prototypes(peer, &tls)]
            }
            Endpoint::Tcp { host, port } => {
                let addresses = dns_refresh::resolve(host, *port).unwrap_or_else(|error| {
                    tracing::warn!(upstream = %settings.address, %error, "the service's name does not resolve yet");
                    Vec::new()
                });
                settings.all_prototypes(&addresses, &tls)
            }
        };
        Ok(Self {
            settings,
            tls: Mutex::new(tls),
            peers: ArcSwap::from_pointee(prototypes),
            preferred: AtomicUsize::new(0),
            lost: Notify::new(),
        })
    }

    /// Where it is, as it is configured: without user and query, which it may not have.
    pub(crate) const fn address(&self) -> &UpstreamAddress {
        &self.settings.address
    }

    /// A peer for one request; `None` while the name does not resolve.
    pub(crate) fn peer(&self, kind: RequestKind) -> Option<Box<HttpPeer>> {
        let peers = self.peers.load();
        let index = self.preferred.load(Ordering::Relaxed) % peers.len().max(1);
        let prototypes = peers.get(index)?;
        let prototype = match kind {
            RequestKind::Plain => &prototypes.plain,
            RequestKind::EventStream | RequestKind::Grpc => &prototypes.stream,
            RequestKind::WebSocket => &prototypes.websocket,
        };
        Some(Box::new(prototype.clone()))
    }

    /// How long the service may be silent where what it says is no stream.
    pub(crate) const fn read_timeout(&self) -> Option<Duration> {
        self.settings.timeouts.read
    }

    /// Takes note that `peer` could not be reached: the next address is tried, and the name is
    /// resolved anew.
    pub(crate) fn unreachable(&self, peer: &HttpPeer) {
        let peers = self.peers.load();
        let index = self.preferred.load(Ordering::Relaxed);
        let current = peers.get(index % peers.len().max(1));
        // Of several requests that fail at once, one moves on.
        if current.is_some_and(|current| current.plain.address() == peer.address()) {
            let next = index.wrapping_add(1);
            let _ =
                self.preferred
                    .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.lost.notify_one();
    }

    /// What the name resolves to, as far as is known.
    fn addresses(&self) -> Vec<SocketAddr> {
        let peers = self.peers.load();
        let inet = |peer: &Prototypes| peer.plain.address().as_inet().copied();
        peers.iter().filter_map(inet).collect()
    }

    /// Takes over what the name resolves to now.
    fn set_addresses(&self, addresses: &[SocketAddr]) {
        let tls = self.tls();
        let prototypes = self.settings.all_prototypes(addresses, &tls);
        self.peers.store(Arc::new(prototypes));
        self.preferred.store(0, Ordering::Relaxed);
    }

    /// New connections are opened with `tls`; the requests that are under way keep theirs, and no other
    /// request gets one of those. `true` where that changes anything.
    pub(crate) fn set_tls(&self, tls: Option<UpstreamTls>) -> bool {
        let mut current = self.tls();
        if current.tls == tls {
            return false;
        }
        current.tls = tls;
        current.generation += 1;
        let addresses = self.addresses();
        let prototypes = self.settings.all_prototypes(&addresses, &current);
        self.peers.store(Arc::new(prototypes));
        true
    }

    fn tls(&self) -> MutexGuard<'_, CurrentTls> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpstreamSettings {
    fn all_prototypes(&self, addresses: &[SocketAddr], tls: &CurrentTls) -> Vec<Prototypes> {
        addresses
            .iter()
            .map(|address| {
                let peer = HttpPeer::new(*address, tls.tls.is_some(), String::new());
                self.prototypes(peer, tls)
            })
            .collect()
    }

    fn prototypes(&self, mut plain: HttpPeer, tls: &CurrentTls) -> Prototypes {
        let options = &mut plain.options;
        options.connection_timeout = Some(self.timeouts.connect);
        options.total_connection_timeout = Some(self.timeouts.connect);
        options.read_timeout = self.timeouts.read;
        options.write_timeout = self.timeouts.read;
        options.idle_timeout = Some(IDLE_TIMEOUT);
        options.max_h2_streams = MAX_STREAMS as usize;
        options.h2_stream_window_size = Some(STREAM_WINDOW);
        options.h2_connection_window_size = Some(MAX_STREAMS * STREAM_WINDOW);
        // The default today; what may become a tunnel must not change with an update.
        options.http_upstream_request_policy.h1_upgrade = H1UpgradePolicy::WebSocketOnly;
        match self.address.protocol {
            Protocol::Http => options.set_http_version(1, 1),
            Protocol::H2c => options.set_http_version(2, 2),
            Protocol::Https => options.set_http_version(2, 1),
        }
        if let Some(tls) = &tls.tls {
            tls.apply_to(&mut plain);
        }
        // Pingora's pool looks neither at the certificates nor at whether HTTP/2 was allowed.
        plain.group_key = GROUPS * tls.generation;
        let mut stream = plain.clone();
        stream.options.read_timeout = None;
        let mut websocket = stream.clone();
        websocket.options.set_http_version(1, 1);
        websocket.group_key += WEBSOCKET_GROUP;
        Prototypes {
            plain,
            stream,
            websocket,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use pingora::upstreams::peer::ALPN;

    use super::*;

    const TIMEOUTS: UpstreamTimeouts = UpstreamTimeouts {
        connect: Duration::from_secs(1),
        read: Some(Duration::from_secs(2)),
    };

    fn upstream(address: &str) -> Result<Upstream, String> {
        Upstream::new(UpstreamSettings {
            address: address.parse().unwrap(),
            timeouts: TIMEOUTS,
            tls: None,
        })
    }

    #[test]
    fn a_socket_path_that_the_system_cannot_take_is_refused() {
        assert!(upstream(&format!("unix:/{}", "a".repeat(200))).is_err());
    }

    #[test]
    fn what_may_be_silent_has_no_read_timeout() {
        let upstream = upstream("http://127.0.0.1:1").unwrap();
        for (kind, read) in [
            (RequestKind::Plain, TIMEOUTS.read),
            (RequestKind::EventStream, None),
            (RequestKind::Grpc, None),
            (RequestKind::WebSocket, None),
        ] {
            let peer = upstream.peer(kind).unwrap();
            assert_eq!(peer.options.read_timeout, read, "{kind:?}");
        }
    }

    #[test]
    fn a_websocket_never_shares_a_connection_that_may_be_http_2() {
        let upstream = upstream("https://127.0.0.1:1").unwrap();
        let plain = upstream.peer(RequestKind::Plain).unwrap();
        let stream = upstream.peer(RequestKind::Grpc).unwrap();
        let websocket = upstream.peer(RequestKind::WebSocket).unwrap();
        assert_eq!(plain.options.alpn, ALPN::H2H1);
        assert_eq!(websocket.options.alpn, ALPN::H1);
        assert_eq!(plain.reuse_hash(), stream.reuse_hash());
        assert_ne!(plain.reuse_hash(), websocket.reuse_hash());
    }

    #[test]
    fn a_name_that_does_not_resolve_gives_no_peer_until_it_does() {
        let upstream = upstream("http://postern.invalid:1").unwrap();
        assert!(upstream.peer(RequestKind::Plain).is_none());
        upstream.set_addresses(&["127.0.0.1:1".parse().unwrap()]);
        assert!(upstream.peer(RequestKind::Plain).is_some());
    }

    #[test]
    fn an_address_that_does_not_answer_makes_room_for_the_next_one() {
        let upstream = upstream("http://127.0.0.1:1").unwrap();
        upstream.set_addresses(&["127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()]);
        let address = || upstream.peer(RequestKind::Plain).unwrap();
        let first = address();
        upstream.unreachable(&first);
        let second = address();
        assert_ne!(first.address(), second.address());
        // Who had the first one too comes late.
        upstream.unreachable(&first);
        assert_eq!(address().address(), second.address());
        upstream.unreachable(&second);
        assert_eq!(address().address(), first.address());
    }
}
