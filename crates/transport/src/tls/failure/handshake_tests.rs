//! Handshakes that fail for each cause that a certificate can have, and their words.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, PKCS_RSA_SHA256, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::super::certificate::roots;
use super::*;

const SETTINGS: PeerSettings = PeerSettings::without_key("--ca", "--cert");

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority_of(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn for_server() -> CertificateParams {
    let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "a.test");
    params
}

/// The server's end of a handshake.
struct Server {
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

impl Server {
    fn issued(params: CertificateParams, issuer: &Issuer) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key,
        }
    }

    fn self_signed(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key,
        }
    }

    /// Replaces the OIDs of the signature by another one of their length, which changes the
    /// signature's algorithm.
    fn said_to_be_signed_with(mut self, last_byte: u8) -> Self {
        const SHA_256_WITH_RSA: [u8; 9] = [42, 134, 72, 134, 247, 13, 1, 1, 11];
        let mut der = self.chain[0].to_vec();
        let at = |der: &[u8]| der.windows(9).position(|it| it == SHA_256_WITH_RSA);
        while let Some(start) = at(&der) {
            der[start + 8] = last_byte;
        }
        self.chain[0] = der.into();
        self
    }

    /// Returns the words for the failure of a client that calls it `a.test`, or "none".
    fn failure(self, trusted: &Issuer) -> String {
        let provider = Arc::new(default_provider());
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        // Unchecked, as other servers present what they have.
        let certified = CertifiedKey::new(self.chain, key);
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(&[trusted.der().clone()]).unwrap())
            .with_no_client_auth();
        let name = "a.test".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            server.read_tls(&mut sent.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            let mut received = Vec::new();
            server.write_tls(&mut received).unwrap();
            client.read_tls(&mut received.as_slice()).unwrap();
            if let Err(error) = client.process_new_packets() {
                return in_words(&error.to_string(), &SETTINGS).unwrap();
            }
        }
        "none".to_owned()
    }
}

#[test]
fn a_handshake_that_fails_has_the_words_of_its_cause() {
    let authority = |params: CertificateParams| -> Issuer {
        Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let [root, other] = ["root", "other"].map(|name| authority(authority_of(name)));
    let below = |params: CertificateParams| -> Issuer {
        Issuer::signed_by(params, KeyPair::generate().unwrap(), &root).unwrap()
    };
    let (intermediate, no_authority) = (below(authority_of("between")), below(named("none")));
    let rsa_key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let rsa = Issuer::self_signed(authority_of("RSA"), rsa_key).unwrap();

    let server = |params: CertificateParams| Server::issued(params, &root);
    let with = |change: fn(&mut CertificateParams)| {
        let mut params = for_server();
        change(&mut params);
        Server::issued(params, &root)
    };
    let behind = |issuer: &Issuer, is_sent: bool| {
        let mut server = Server::issued(for_server(), issuer);
        server.chain.extend(is_sent.then(|| issuer.der().clone()));
        server
    };
    for (server, trusted, words) in [
        (server(for_server()), &root, "none"),
        (behind(&intermediate, true), &root, "none"),
        (Server::self_signed(for_server()), &root, "not trusted"),
        (server(for_server()), &other, "--ca names a file"),
        (
            behind(&intermediate, false),
            &root,
            "has to send all certificates between",
        ),
        (behind(&no_authority, true), &root, "CA:TRUE is missing"),
        (server(named("a.test")), &root, "has no subjectAltName"),
        (
            server(CertificateParams::new(["b.test".to_owned()]).unwrap()),
            &root,
            "is only valid for b.test; the setting has to name",
        ),
        (
            with(|it| {
                let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
                unknown.set_criticality(true);
                it.custom_extensions.push(unknown);
            }),
            &root,
            "critical extension that is unknown here",
        ),
        (
            with(|it| {
                it.extended_key_usages
                    .push(ExtendedKeyUsagePurpose::ClientAuth)
            }),
            &root,
            "for server authentication, allows client authentication; issue it for that use",
        ),
        (
            with(|it| it.not_after = date_time_ymd(2020, 1, 1)),
            &root,
            "has expired",
        ),
        (
            with(|it| it.not_before = date_time_ymd(2200, 1, 1)),
            &root,
            "is not valid yet",
        ),
        (
            Server::issued(for_server(), &rsa).said_to_be_signed_with(5),
            &rsa,
            "signed with SHA-1",
        ),
        (
            Server::issued(for_server(), &rsa).said_to_be_signed_with(4),
            &rsa,
            "signed with MD5",
        ),
    ] {
        let failure = server.failure(trusted);
        assert!(failure.contains(words), "{words}: {failure}");
        assert!(!failure.contains(['{', '"']) && failure.len() < 250);
    }

    // Trusted, and presented by itself.
    let itself = Server::self_signed(authority_of("a.test"));
    let key = KeyPair::try_from(itself.key.serialize_der()).unwrap();
    let trusted = Issuer::self_signed(authority_of("a.test"), key).unwrap();
    let failure = itself.failure(&trusted);
    assert!(
        failure.contains("its certificate is an authority's"),
        "{failure}"
    );
}
