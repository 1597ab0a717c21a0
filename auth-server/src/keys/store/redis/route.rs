//! The way to the store: what its address leads to, with the passwords and certificates of this moment.
//!
//! Their files are read for each call, which is rare: whoever replaces one need not tell anybody.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::super::access::{AccessFiles, StoreAccess};
use super::address::{Address, Endpoint};

/// Locked while it is looked at or replaced, never while a file is read.
pub(super) struct Route(Mutex<Known>);

struct Known {
    /// It may hold a password.
    address: Zeroizing<String>,
    timeout: Duration,
    access: StoreAccess,
    endpoint: Endpoint,
    /// Told already: files that cannot be used are one line, and not one for each call.
    failure: Option<String>,
}

impl Route {
    /// To `endpoint`, which is what `address` leads to with `access`.
    pub(super) fn new(
        address: &str,
        access: StoreAccess,
        endpoint: Endpoint,
        timeout: Duration,
    ) -> Self {
        Self(Mutex::new(Known {
            address: Zeroizing::new(address.to_owned()),
            timeout,
            access,
            endpoint,
            failure: None,
        }))
    }

    /// Where to connect to now. Files that cannot be used, or not together because they are just being
    /// replaced, change nothing.
    pub(super) async fn endpoint(&self) -> Endpoint {
        let files = self.known().access.files.clone();
        if !files.are_none() {
            let read = read(files).await;
            self.known().follow(read);
        }
        self.known().endpoint.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn follow(&mut self, read: Result<StoreAccess, String>) {
        match read.and_then(|access| self.replace(access)) {
            Ok(replaced) => {
                let recovered = self.failure.take().is_some();
                if replaced {
                    info!("the store is reached with other passwords or certificates from now on");
                } else if recovered {
                    info!("the files for the store can be used again");
                }
            }
            Err(failure) => {
                if self.failure.as_ref() != Some(&failure) {
                    warn!(%failure, "a file for the store cannot be used: what it held before stays");
                }
                self.failure = Some(failure);
            }
        }
    }

    fn replace(&mut self, access: StoreAccess) -> Result<bool, String> {
        if access == self.access {
            return Ok(false);
        }
        self.endpoint = Address::parse(&self.address, &access, self.timeout)?.endpoint;
        self.access = access;
        Ok(true)
    }
}

/// They may lie on a share that hangs.
async fn read(files: AccessFiles) -> Result<StoreAccess, String> {
    spawn_blocking(|| StoreAccess::read(files).map_err(|fault| fault.to_string()))
        .await
        .unwrap_or_else(|error| Err(error.to_string()))
}
