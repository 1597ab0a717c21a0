//! The current endpoint of the store, with passwords and certificates re-read for each connection,
//! so that replaced files take effect without a signal.

use std::sync::Arc;

use postern_process::clock::unix_now;
use postern_process::files::file_watch::{self, run_blocking};
use postern_process::logs::once_a_minute::OnceAMinute;
use zeroize::Zeroizing;

use super::address::{Address, Endpoint};
use super::credentials::{CredentialFiles, Credentials};

/// The way to the store.
pub(super) struct Route {
    /// May hold a password.
    address: Zeroizing<String>,
    access: Credentials,
    endpoint: Arc<Endpoint>,
    failure_logged: OnceAMinute,
}

impl Route {
    /// Starts with `endpoint`, parsed from `address` with `access`.
    pub(super) fn new(address: &str, access: Credentials, endpoint: Endpoint) -> Self {
        Self {
            address: Zeroizing::new(address.to_owned()),
            access,
            endpoint: Arc::new(endpoint),
            failure_logged: OnceAMinute::default(),
        }
    }

    /// Returns the current endpoint. Unusable files, or a half-replaced set, change nothing.
    pub(super) async fn endpoint(&mut self) -> Arc<Endpoint> {
        if self.access.files != CredentialFiles::default() {
            let files = self.access.files.clone();
            let read = run_blocking(move || Credentials::read(files)).await;
            let replaced = read.and_then(|access| self.replace(access, unix_now()));
            let files = "passwords and certificates for the store";
            file_watch::log_news(files, &replaced, &mut self.failure_logged);
        }
        Arc::clone(&self.endpoint)
    }

    fn replace(&mut self, access: Credentials, now: i64) -> Result<bool, String> {
        if access == self.access {
            return Ok(false);
        }
        let former = self.access.client.as_ref();
        let next = access.client.as_ref();
        if next.is_some_and(|next| !next.may_replace(former, now)) {
            return Err("--store-client-cert: the certificate has expired".to_owned());
        }
        let address = Address::parse(&self.address, &access)?;
        self.endpoint = Arc::new(address.endpoint);
        self.access = access;
        Ok(true)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::path::Path;

    use ::tests::wire::certificates::{Authority, write_private};
    use postern_transport::tls::CertificateFiles;

    use super::*;

    const ADDRESS: &str = "redis://127.0.0.1:1";

    fn to_a_store_with_the_password_in(file: &Path) -> Route {
        let files = CredentialFiles {
            store_password_file: Some(file.to_owned()),
            ..CredentialFiles::default()
        };
        let access = Credentials::read(files).unwrap();
        let endpoint = Address::parse(ADDRESS, &access).unwrap().endpoint;
        Route::new(ADDRESS, access, endpoint)
    }

    /// Returns the password of the next connection.
    async fn password(route: &mut Route) -> String {
        let Endpoint::One(client) = &*route.endpoint().await else {
            unreachable!("the address of one server")
        };
        let settings = client.get_connection_info().redis_settings();
        settings.password().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_password_that_cannot_be_read_leaves_the_way_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        write_private(&file, "first");
        let mut route = to_a_store_with_the_password_in(&file);
        write_private(&file, "second");
        assert_eq!(password(&mut route).await, "second");
        std::fs::remove_file(&file).unwrap();
        for _ in 0..2 {
            assert_eq!(password(&mut route).await, "second");
        }
        write_private(&file, "third");
        while password(&mut route).await != "third" {}
    }

    #[test]
    fn an_ended_client_certificate_replaces_no_other() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let address = "rediss://127.0.0.1:1";
        let endpoint = Address::parse(address, &Credentials::default());
        let endpoint = endpoint.unwrap().endpoint;
        let mut known = Route::new(address, Credentials::default(), endpoint);
        let authority = Authority::new();
        let certificate = authority.issue("client");
        let showing = |not_after| Credentials {
            client: Some(CertificateFiles {
                not_after,
                ..CertificateFiles::read(&certificate.cert, &certificate.key).unwrap()
            }),
            ..Credentials::default()
        };
        assert!(known.replace(showing(99), 100).is_err());
        assert_eq!(known.replace(showing(100), 100), Ok(true));
        let other_password = Credentials {
            password: Some(Zeroizing::new("other".to_owned())),
            ..showing(100)
        };
        let later = known.replace(other_password, 200);
        assert_eq!(later, Ok(true), "it was shown before");
    }
}
