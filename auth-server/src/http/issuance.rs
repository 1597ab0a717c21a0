//! The common part of logins and token requests: limits of a client, and the signature of a token.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::net::client_address::TrustedProxies;
use tracing::error;
use wire::keys::KeyId;
use wire::rejection::Rejection;

use super::unfinished::Unfinished;
use crate::keys::live::LiveKeys;
use crate::keys::pair::SigningKeyPair;
use crate::metrics::Metrics;
use crate::rate_limit::{AddressLimit, RetryAfter};
use crate::store::clock::StoreClock;
use crate::tokens::issuer::{SigningError, TokenIssuer};

#[derive(Clone)]
pub(crate) struct Issuance {
    /// Of logins and token requests together; `None` for no limit.
    pub(crate) address_limit: Option<Arc<AddressLimit>>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) issuer: TokenIssuer,
    pub(crate) live_keys: Arc<LiveKeys>,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) metrics: Metrics,
    pub(crate) body_timeout: Duration,
    pub(crate) unfinished: Unfinished,
}

/// A signed token.
pub(in crate::http) struct Signed {
    pub(in crate::http) token: String,
    pub(in crate::http) key_id: KeyId,
}

impl Issuance {
    /// Checks the limits of a client, before its request is verified.
    ///
    /// # Errors
    /// [`Rejection::StoreUnavailable`] without a key, where no request can succeed and none counts;
    /// [`RetryAfter`] over the limit.
    pub(in crate::http) fn check_limits<E>(&self, client: IpAddr) -> Result<(), E>
    where
        E: From<Rejection> + From<RetryAfter>,
    {
        self.live_keys.load().ok_or(Rejection::StoreUnavailable)?;
        if let Some(limit) = &self.address_limit {
            limit.take(client, Instant::now())?;
        }
        Ok(())
    }

    /// Signs a token with the present key.
    ///
    /// # Errors
    /// [`Rejection::StoreUnavailable`] without a key, [`Rejection::Internal`].
    pub(in crate::http) fn sign(
        &self,
        issue: impl FnOnce(&TokenIssuer, &SigningKeyPair) -> Result<String, SigningError>,
    ) -> Result<Signed, Rejection> {
        let pair = self.live_keys.load().ok_or(Rejection::StoreUnavailable)?;
        let began = Instant::now();
        let token = issue(&self.issuer, &pair).map_err(|error| internal_error(&error))?;
        self.metrics.signed(began.elapsed());
        Ok(Signed {
            token,
            key_id: pair.id().clone(),
        })
    }
}

/// Logs an error that is not the client's.
pub(in crate::http) fn internal_error(error: &dyn std::error::Error) -> Rejection {
    error!(%error, "a token cannot be issued");
    Rejection::Internal
}
