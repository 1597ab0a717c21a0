//! Other issuers that report the ends of their sessions, and the revocations that follow from a statement.

mod keys;
mod once;

use std::sync::Arc;
use std::time::Duration;

use postern_process::tasks;
use postern_token::revocations::RevocationDigest;
use postern_token::revocations::statement::{
    Ended, Expected, Form, InvalidStatement, MAX_AHEAD, Statement,
};
use postern_token::verifier::names_key;
use postern_transport::admin::health::Health;
use postern_transport::http_client::ClientSettings;
use postern_transport::issuer::Purpose;
use postern_transport::issuer::key_set::{KeySetSettings, KeySetSource};
use tracing::warn;

use self::keys::ForeignKeys;
use super::entry::StatementDigests;
use super::{Revocation, end_of_tokens};
use crate::rate_limit::RetryAfter;

/// Time from connecting to the last byte of a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds for which a logout token counts. Issuers that get no response send the same one again.
const MAX_LOGOUT_AGE: i64 = 600;

/// The settings of one issuer.
#[derive(Debug)]
pub(crate) struct ForeignIssuerSettings {
    pub(crate) issuer: String,
    /// The accepted `aud`.
    pub(crate) clients: Vec<String>,
    /// Seconds for which the issuer's access tokens may be valid.
    pub(crate) token_lifetime: i64,
    /// True if the end of a session ends every token of its user.
    pub(crate) ends_users: bool,
}

/// Another issuer, and its keys.
#[derive(Debug)]
pub(crate) struct ForeignIssuer {
    settings: Arc<ForeignIssuerSettings>,
    keys: ForeignKeys,
}

/// A verified statement of an issuer.
#[derive(Debug)]
pub(crate) struct VerifiedStatement {
    issuer: Arc<ForeignIssuerSettings>,
    statement: Statement,
    pub(crate) digests: StatementDigests,
    /// The latest second whose tokens it ends.
    latest: i64,
    /// Seconds since the epoch from which on a statement of this age does not count.
    ends: i64,
}

/// The reason why a statement ends nothing.
#[derive(Debug)]
pub(crate) enum NotVerified {
    Invalid(InvalidStatement),
    /// The client of a statement with an unknown key may not begin a fetch.
    Limited(RetryAfter),
    /// The keys of the statement's issuer cannot be fetched.
    NoKeys,
}

impl From<InvalidStatement> for NotVerified {
    fn from(invalid: InvalidStatement) -> Self {
        Self::Invalid(invalid)
    }
}

impl ForeignIssuer {
    /// Opens the source of the issuer's keys, without a fetch.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub(crate) fn new(
        settings: ForeignIssuerSettings,
        keys: KeySetSettings,
    ) -> Result<Self, String> {
        let client = ClientSettings {
            named: keys.tls.settings,
            files: "certificates for an issuer of [[logout]]",
            user_agent: Some(concat!("postern-auth-server/", env!("CARGO_PKG_VERSION"))),
            is_traced: true,
            timeout: TIMEOUT,
            ..ClientSettings::default()
        };
        let mut source = KeySetSource::new(keys, client);
        if let Some(warning) = source.open()? {
            warn!("[[logout]] {}: {warning}", settings.issuer);
        }
        Ok(Self {
            keys: ForeignKeys::new(source, settings.issuer.clone()),
            settings: Arc::new(settings),
        })
    }

    /// Returns the `iss` of the issuer.
    pub(crate) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Fetches the keys before the first statement, so that a wrong address is logged at the start, and reports
    /// them from then on.
    pub(crate) fn prepare(&self, health: &Health) {
        let (issuer, reported) = (self.settings.issuer.clone(), self.keys.clone());
        health.computed(move || reported.condition(&issuer));
        let keys = self.keys.clone();
        tasks::spawn(async move { keys.fetched(Purpose::Tick).await });
    }

    /// Verifies a statement at `now`. `may_fetch` decides about a fetch for a key that is not known.
    ///
    /// # Errors
    /// [`NotVerified`]
    pub(crate) async fn verified(
        &self,
        form: Form,
        token: &str,
        now: i64,
        may_fetch: impl Fn() -> Result<(), RetryAfter>,
    ) -> Result<VerifiedStatement, NotVerified> {
        let max_age = match form {
            Form::LogoutToken => MAX_LOGOUT_AGE,
            // A transmitter may send an event late; an event that is older would end only expired tokens.
            Form::SecurityEvent => self.settings.token_lifetime,
        };
        let expected = Expected {
            issuer: &self.settings.issuer,
            audiences: &self.settings.clients,
            max_age,
        };
        let keys = self.keys.present().await.ok_or(NotVerified::NoKeys)?;
        let mut verified = Statement::verify(form, &keys, token, expected, now);
        if let Err(InvalidStatement::Token(rejection)) = verified
            && keys.may_be_outdated(rejection, names_key(token))
        {
            may_fetch().map_err(NotVerified::Limited)?;
            let fetched = self.keys.fetched(Purpose::UnknownKey).await;
            let newer = fetched.ok_or(NotVerified::NoKeys)?;
            verified = Statement::verify(form, &newer, token, expected, now);
        }
        let statement = verified?;
        let ahead = statement.issued_at.saturating_add(MAX_AHEAD);
        Ok(VerifiedStatement {
            issuer: Arc::clone(&self.settings),
            digests: StatementDigests {
                id: RevocationDigest::for_statement(self.issuer(), &statement.id),
                token: RevocationDigest::for_text(token),
            },
            latest: match form {
                Form::LogoutToken => i64::MAX,
                // The event may be late: sessions that began after it was made go on.
                Form::SecurityEvent => ahead,
            },
            ends: ahead.saturating_add(max_age),
            statement,
        })
    }
}

impl VerifiedStatement {
    /// Returns true for an event that ends nothing.
    pub(crate) const fn is_without_effect(&self) -> bool {
        self.statement.ended.is_empty()
    }

    /// Returns the revocations that follow from it where they are committed at `now`.
    fn revocations(&self, now: i64) -> Vec<Revocation> {
        // If the issuer's clock is ahead, tokens from before the statement may seem to be later.
        let time = now.min(self.latest).max(self.statement.issued_at);
        self.statement
            .ended
            .iter()
            .map(|it| self.revocation(it, time))
            .collect()
    }

    fn revocation(&self, ended: &Ended, time: i64) -> Revocation {
        let ended = match ended {
            Ended::Session {
                user: Some(user), ..
            } if self.issuer.ends_users => Ended::User(user.clone()),
            ended => ended.clone(),
        };
        let live = end_of_tokens(time, self.issuer.token_lifetime);
        Revocation::for_statement(self.issuer.issuer.clone(), ended, self.digests, time)
            .until(live, live)
    }
}
