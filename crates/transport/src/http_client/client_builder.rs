//! The client of the library: its bounds, its trust, and the addresses that it connects to.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, ClientBuilder, Identity, redirect, tls};
use tokio::net::lookup_host;

use super::settings::{ClientSettings, Trust};
use crate::tls::failure::with_causes;
use crate::tls::peer::PeerCertificates;

/// A resolver that returns the address that discovery chose; the URL keeps the configured name, for
/// the `Host` field and the certificate.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    pub(super) chosen: ArcSwapOption<SocketAddr>,
}

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let chosen = self.chosen.load_full();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = match chosen {
                Some(address) => vec![*address],
                // Port 0 leaves the port of the URL in effect.
                None => lookup_host((name.as_str(), 0)).await?.collect(),
            };
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Builds the client with these certificates.
pub(super) fn build(
    settings: &ClientSettings,
    addresses: &Arc<Addresses>,
    material: &PeerCertificates,
) -> Result<Client, String> {
    let built = builder(settings, addresses, material).and_then(ClientBuilder::build);
    built.map_err(|error| {
        format!(
            "the HTTP client cannot be built: {}",
            with_causes(&error, &settings.named)
        )
    })
}

fn builder(
    settings: &ClientSettings,
    addresses: &Arc<Addresses>,
    material: &PeerCertificates,
) -> reqwest::Result<ClientBuilder> {
    let mut client = Client::builder()
        .timeout(settings.timeout)
        // No redirect is followed: it could replace a key, or carry a password to another server.
        .redirect(redirect::Policy::none())
        // The library would read the environment in another way than curl, and for every request.
        .no_proxy()
        .pool_max_idle_per_host(usize::from(!settings.kept.is_zero()))
        .pool_idle_timeout(settings.kept)
        .dns_resolver(Arc::clone(addresses));
    if let Some(timeout) = settings.connect_timeout {
        client = client.connect_timeout(timeout);
    }
    if let Some(program) = settings.user_agent {
        client = client.user_agent(program);
    }
    if let Some(socket) = &settings.socket {
        client = client.unix_socket(socket.clone());
    }
    if let Some(proxy) = &settings.proxy {
        client = proxy.apply_to(client)?;
    }
    match settings.trust {
        Trust::NoTls => Ok(client.tls_certs_only([])),
        Trust::Anyone => Ok(client
            .tls_certs_only([])
            .tls_danger_accept_invalid_certs(true)),
        Trust::Authorities => with_certificates(client, material),
    }
}

fn with_certificates(
    client: ClientBuilder,
    material: &PeerCertificates,
) -> reqwest::Result<ClientBuilder> {
    let mut client = client.tls_version_min(tls::Version::TLS_1_2);
    if let Some(authorities) = &material.authorities {
        let mut trusted = Vec::new();
        for one in authorities {
            trusted.push(Certificate::from_der(one)?);
        }
        client = client.tls_certs_only(trusted);
    }
    if let Some(identity) = &material.identity {
        client = client.identity(Identity::from_pem(&identity.pem())?);
    }
    Ok(client)
}
