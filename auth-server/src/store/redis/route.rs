//! The current endpoint of the store, with passwords and certificates re-read for each connection,
//! so that replaced files take effect without a signal.

use std::sync::Arc;

use postern_transport::tls::followed::{Followed, InForce};
use zeroize::Zeroizing;

use super::address::{Address, Endpoint};
use super::credentials::{CredentialFiles, Credentials};

/// The way to the store.
pub(super) struct Route {
    /// The address, which may hold a password.
    address: Zeroizing<String>,
    followed: Followed<Credentials, Endpoint>,
}

impl Route {
    /// Starts with `endpoint`, parsed from `address` with `access`.
    pub(super) fn new(address: &str, access: Credentials, endpoint: Endpoint) -> Self {
        Self {
            address: Zeroizing::new(address.to_owned()),
            followed: Followed::new("passwords and certificates for the store", access, endpoint),
        }
    }

    /// Returns the present credentials and endpoint without reading a file.
    pub(super) fn in_force(&self) -> Arc<InForce<Credentials, Endpoint>> {
        self.followed.load()
    }

    /// Returns the endpoint for the next connection. Unusable or half-replaced files change nothing.
    pub(super) async fn followed(&self) -> Arc<InForce<Credentials, Endpoint>> {
        let files = self.in_force().content.files.clone();
        // Without files nothing can change, and no thread is needed to read them.
        if files != CredentialFiles::default() {
            let read = move || Credentials::read(files);
            let endpoint =
                |access: &Credentials| Ok(Address::parse(&self.address, access)?.endpoint);
            self.followed.follow(read, endpoint).await;
        }
        self.in_force()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::path::Path;

    use ::tests::wire::certificates::write_private;

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
    async fn password(route: &Route) -> String {
        let Endpoint::One(client) = &route.followed().await.value else {
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
        let route = to_a_store_with_the_password_in(&file);
        write_private(&file, "second");
        assert_eq!(password(&route).await, "second");
        std::fs::remove_file(&file).unwrap();
        for _ in 0..2 {
            assert_eq!(password(&route).await, "second");
        }
        write_private(&file, "third");
        while password(&route).await != "third" {}
    }
}
