//! The upstream: the address of the service, the head that it gets, and connections to it.

mod address;
pub(crate) mod bodies;
pub(crate) mod connections;
mod dns_refresh;
pub(crate) mod errors;
pub(crate) mod exposure_check;
mod loop_check;
mod retry;
pub(crate) mod service;
pub(crate) mod service_request;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use pingora::upstreams::peer::{HttpPeer, Peer};
use postern_process::clock::unix_now;
use postern_process::files::file_watch;
use postern_token::times::moment;
use postern_transport::admin::health::ConditionState;
use postern_transport::tls::followed::Followed;
use tokio::sync::Notify;

pub(crate) use address::{Endpoint, Protocol, UpstreamAddress};
pub(crate) use dns_refresh::UpstreamNames;
pub(crate) use retry::{Tries, broke_before_response};
pub(crate) use tls::UpstreamTls;

/// Below the 5 s of Node, the shortest time of the common servers: a POST on a connection that is being
/// closed fails.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Limit of a response's head.
pub(crate) const MAX_HEAD_BYTES: usize = 1024 * 1024;

const CERTIFICATES: &str = "certificates for the service";

/// Settings of the upstream.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamSettings {
    pub(crate) address: UpstreamAddress,
    pub(crate) connect_timeout: Duration,
    /// Timeout of a response's head and of each read of its body; `None` waits forever.
    pub(crate) read_timeout: Option<Duration>,
    /// TLS settings, with [`Protocol::Https`] only.
    pub(crate) tls: Option<UpstreamTls>,
}

/// The TLS settings in force, and their generation, which separates connections that were opened with other
/// settings.
type CurrentTls = Followed<UpstreamTls, u64>;

/// Source of peers. Shared by all requests.
#[derive(Debug)]
pub(crate) struct Upstream {
    settings: UpstreamSettings,
    /// `None` without TLS. Locked while peers are replaced, so that the latest peers use the latest settings.
    tls: Mutex<Option<CurrentTls>>,
    /// Peers, one for each address; empty until the name resolves.
    peers: ArcSwap<Vec<Arc<ServicePeer>>>,
    /// Index of the peer in use, modulo the number of peers.
    preferred: AtomicUsize,
    /// True once the service has chosen HTTP/1.1 over TLS.
    chose_http_1: AtomicBool,
    /// The outcome of the last connection: `Err` with address, time and cause.
    connected: ArcSwapOption<Result<(), String>>,
    /// Notified when an address is unreachable: the name may have other addresses now.
    lost: Notify,
}

/// One address of the service, with the settings of connections to it.
#[derive(Debug)]
pub(crate) struct ServicePeer {
    /// The settings of a connection in the version that the service chooses.
    pub(crate) any: HttpPeer,
    /// The settings of a connection that has to speak HTTP/1.1, for WebSockets.
    pub(crate) http_1: HttpPeer,
    /// Requests with an equal key may share a connection.
    key: u64,
}

impl Upstream {
    /// Resolves the address for the first time. A name that does not resolve yet is no error: the
    /// service may be started after its sidecar.
    ///
    /// # Errors
    /// A socket path that is too long for the system.
    pub(crate) fn new(mut settings: UpstreamSettings) -> Result<Self, String> {
        let tls = settings.tls.take();
        let tls = tls.map(|tls| Followed::new(CERTIFICATES, tls, 0));
        let peers = match &settings.address.endpoint {
            Endpoint::Unix(path) => {
                let peer = path
                    .to_str()
                    .and_then(|path| HttpPeer::new_uds(path, false, String::new()).ok())
                    .ok_or("the path is too long for a socket")?;
                vec![settings.peer(peer, tls.as_ref())]
            }
            Endpoint::Tcp { host, port } => match dns_refresh::resolve(host, *port) {
                Ok(addresses) => settings.all_peers(&addresses, tls.as_ref()),
                Err(error) => {
                    tracing::warn!(upstream = %settings.address, %error, "the service's name does not resolve yet");
                    Vec::new()
                }
            },
        };
        Ok(Self {
            settings,
            tls: Mutex::new(tls),
            peers: ArcSwap::from_pointee(peers),
            preferred: AtomicUsize::new(0),
            chose_http_1: AtomicBool::new(false),
            connected: ArcSwapOption::empty(),
            lost: Notify::new(),
        })
    }

    /// Returns the configured address; it has no user and no query.
    pub(crate) const fn address(&self) -> &UpstreamAddress {
        &self.settings.address
    }

    /// Returns the address in use; `None` while the name does not resolve.
    pub(crate) fn peer(&self) -> Option<Arc<ServicePeer>> {
        let peers = self.peers.load();
        // The list is empty until the name resolves.
        let index = self.preferred.load(Ordering::Relaxed) % peers.len().max(1);
        peers.get(index).map(Arc::clone)
    }

    /// Returns true for a service of HTTP/1.1; over TLS if it chose that version last.
    pub(crate) fn speaks_http_1(&self) -> bool {
        match self.settings.address.protocol {
            Protocol::Http => true,
            Protocol::Https => self.chose_http_1.load(Ordering::Relaxed),
            Protocol::H2c => false,
        }
    }

    /// Remembers the version of a connection for which the service had the choice.
    pub(crate) fn has_chosen(&self, is_http_2: bool) {
        self.chose_http_1.store(!is_http_2, Ordering::Relaxed);
    }

    /// Returns the read timeout of responses that are no streams.
    pub(crate) const fn read_timeout(&self) -> Option<Duration> {
        self.settings.read_timeout
    }

    /// Notes that the service was reached.
    pub(crate) fn reached(&self) {
        // Most connections change nothing.
        if !matches!(self.connected.load().as_deref(), Some(Ok(()))) {
            self.connected.store(Some(Arc::new(Ok(()))));
        }
    }

    /// Reports the service for the status page: it does not decide about readiness.
    pub(crate) fn report(&self) -> ConditionState {
        let (note, warns) = match self.connected.load_full().as_deref() {
            _ if self.peer().is_none() => ("its name does not resolve".to_owned(), true),
            None => ("no connection yet".to_owned(), false),
            Some(Ok(())) => ("the last connection succeeded".to_owned(), false),
            Some(Err(failed)) => (failed.clone(), true),
        };
        ConditionState::noted("service", format!("{}: {note}", self.address()), warns)
    }

    /// Selects the next address after `peer` was unreachable for this cause, and has the name resolved again.
    pub(crate) fn unreachable(&self, peer: &Arc<ServicePeer>, cause: String) {
        let (address, at) = (peer.any.address(), moment(unix_now()));
        let failed = format!("the last connection, at {at} to {address}, failed: {cause}");
        self.connected.store(Some(Arc::new(Err(failed))));
        let peers = self.peers.load();
        let index = self.preferred.load(Ordering::Relaxed);
        // Of several requests that fail at once, only one selects the next address.
        if let Some(current) = peers.get(index % peers.len().max(1))
            && Arc::ptr_eq(current, peer)
        {
            let next = index.wrapping_add(1);
            let _ =
                self.preferred
                    .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.lost.notify_one();
    }

    /// Returns the present addresses.
    fn addresses(&self) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for peer in &**self.peers.load() {
            addresses.extend(peer.any.address().as_inet());
        }
        addresses
    }

    /// Replaces the addresses.
    fn set_addresses(&self, addresses: &[SocketAddr]) {
        // `tls` is locked to the end: certificates that are replaced meanwhile would get lost.
        let tls = self.tls.lock();
        self.peers
            .store(Arc::new(self.settings.all_peers(addresses, tls.as_ref())));
        self.preferred.store(0, Ordering::Relaxed);
    }

    /// Opens new connections with `tls` if it is a change and may replace the present settings;
    /// requests in flight keep their connections, which are not reused.
    ///
    /// # Errors
    /// The reason why the present settings stay.
    pub(crate) fn set_tls(&self, tls: Option<UpstreamTls>) -> Result<(), String> {
        let current = self.tls.lock();
        // TLS begins or ends only with the next start.
        let (Some(current), Some(tls)) = (&*current, tls) else {
            return Ok(());
        };
        let generation = current.load().value + 1;
        if current.replace(tls, unix_now(), |_| Ok(generation))? {
            file_watch::log(CERTIFICATES, &Ok(true));
            // The new peers' keys separate later requests from connections with the old certificates.
            self.peers.store(Arc::new(
                self.settings.all_peers(&self.addresses(), Some(current)),
            ));
        }
        Ok(())
    }
}

impl UpstreamSettings {
    fn all_peers(
        &self,
        addresses: &[SocketAddr],
        tls: Option<&CurrentTls>,
    ) -> Vec<Arc<ServicePeer>> {
        let mut peers = Vec::new();
        for address in addresses {
            peers.push(self.peer(HttpPeer::new(*address, tls.is_some(), String::new()), tls));
        }
        peers
    }

    fn peer(&self, mut any: HttpPeer, tls: Option<&CurrentTls>) -> Arc<ServicePeer> {
        let options = &mut any.options;
        options.connection_timeout = Some(self.connect_timeout);
        options.total_connection_timeout = Some(self.connect_timeout);
        options.idle_timeout = Some(IDLE_TIMEOUT);
        match self.address.protocol {
            Protocol::Http => options.set_http_version(1, 1),
            Protocol::H2c => options.set_http_version(2, 2),
            Protocol::Https => options.set_http_version(2, 1),
        }
        if let Some(tls) = tls {
            let tls = tls.load();
            tls.content.apply_to(&mut any);
            // The hash covers the address, and not each certificate; the generation stands for these.
            any.group_key = tls.value;
        }
        let mut http_1 = any.clone();
        http_1.options.set_http_version(1, 1);
        Arc::new(ServicePeer {
            key: any.reuse_hash(),
            any,
            http_1,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use pingora::upstreams::peer::ALPN;

    use super::*;

    pub(super) fn upstream(address: &str) -> Result<Upstream, String> {
        Upstream::new(UpstreamSettings {
            address: address.parse().unwrap(),
            connect_timeout: Duration::from_secs(1),
            read_timeout: Some(Duration::from_secs(2)),
            tls: None,
        })
    }

    #[test]
    fn a_socket_path_that_is_too_long_is_rejected() {
        assert!(upstream(&format!("unix:/{}", "a".repeat(200))).is_err());
    }

    #[test]
    fn websockets_are_opened_in_http_1_1() {
        let upstream = upstream("https://127.0.0.1:1").unwrap();
        let peer = upstream.peer().unwrap();
        assert_eq!(peer.any.options.alpn, ALPN::H2H1);
        assert_eq!(peer.http_1.options.alpn, ALPN::H1);
    }

    #[test]
    fn the_report_has_the_last_connection() {
        let upstream = upstream("http://127.0.0.1:1").unwrap();
        let reported = || {
            let state = upstream.report();
            (state.ok, state.warns, state.note.unwrap())
        };
        let row = |warns, text: &str| (true, warns, format!("http://127.0.0.1:1: {text}"));
        assert_eq!(reported(), row(false, "no connection yet"));
        upstream.unreachable(&upstream.peer().unwrap(), "away".to_owned());
        let (_, warns, note) = reported();
        assert!(
            warns && note.contains(" to 127.0.0.1:1, failed: away"),
            "{note}"
        );
        upstream.reached();
        assert_eq!(reported(), row(false, "the last connection succeeded"));
        upstream.set_addresses(&[]);
        assert_eq!(reported(), row(true, "its name does not resolve"));
    }

    #[test]
    fn an_unreachable_address_selects_the_next_one() {
        let upstream = upstream("http://127.0.0.1:1").unwrap();
        upstream.set_addresses(&["127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()]);
        let address = || upstream.peer().unwrap();
        let first = address();
        upstream.unreachable(&first, "away".to_owned());
        let second = address();
        assert_ne!(first.any.address(), second.any.address());
        // A second failure of the first one changes nothing.
        upstream.unreachable(&first, "away".to_owned());
        assert_eq!(address().any.address(), second.any.address());
        upstream.unreachable(&second, "away".to_owned());
        assert_eq!(address().any.address(), first.any.address());
    }
}
