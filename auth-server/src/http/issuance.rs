//! The common part of logins and token requests: the signature of a token.

use std::sync::Arc;
use std::time::Instant;

use postern_contract::rejection::Rejection;
use tracing::error;

use crate::accounts::users::PresentUser;
use crate::http::app::App;
use crate::http::response::store_rejection;
use crate::keys::pair::SigningKeyPair;
use crate::keys::published::PublishedKeys;
use crate::random;
use crate::store::open_store::OpenStore;
use crate::telemetry::audit::events::TokenIds;
use crate::tokens::issuer::{SigningError, TokenIssuer};

impl App {
    /// Returns the keys in use. Without keys no request can succeed, and no request counts as a guess.
    ///
    /// # Errors
    /// [`Rejection::StoreUnavailable`]
    pub(in crate::http) fn keys(&self) -> Result<Arc<PublishedKeys>, Rejection> {
        self.live_keys
            .load_full()
            .ok_or(Rejection::StoreUnavailable)
    }

    /// Checks that no server has loaded a later users file, in which the user left or has other
    /// credentials.
    ///
    /// # Errors
    /// [`Rejection::UsersStale`]; [`Rejection::ServerBusy`] while too many requests wait for the store.
    pub(in crate::http) async fn check_user_is_current(
        &self,
        store: &OpenStore,
        user: &PresentUser,
    ) -> Result<(), Rejection> {
        let Some(recorded) = &self.recorded_users else {
            return Ok(());
        };
        match recorded.knows(store, user).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Rejection::UsersStale),
            Err(error) => {
                let what = "a user cannot be compared with the store";
                Err(store_rejection(&error, what))
            }
        }
    }

    /// Signs a token of this `jti` with the present key, and returns its ids as well.
    ///
    /// # Errors
    /// [`Rejection::StoreUnavailable`] without a key, [`Rejection::Internal`].
    pub(in crate::http) fn sign(
        &self,
        token_id: String,
        issue: impl FnOnce(&TokenIssuer, &SigningKeyPair, String) -> Result<String, SigningError>,
    ) -> Result<(String, TokenIds), Rejection> {
        let keys = self.keys()?;
        let pair = keys.ring.current();
        let began = Instant::now();
        let token = issue(&self.config.issuer, pair, token_id.clone())
            .map_err(|error| internal_error(&error))?;
        self.metrics
            .token_signing_duration_seconds
            .observe(began.elapsed());
        let ids = TokenIds {
            token_id,
            key_id: pair.id().clone(),
        };
        Ok((token, ids))
    }
}

/// Returns a `jti` that no other token has.
///
/// # Errors
/// [`Rejection::Internal`] without randomness.
pub(in crate::http) fn token_id() -> Result<String, Rejection> {
    random::token_id().map_err(|error| internal_error(&error))
}

/// Logs an error that is not the client's.
fn internal_error(error: &dyn std::error::Error) -> Rejection {
    error!(%error, "a token cannot be issued");
    Rejection::Internal
}
