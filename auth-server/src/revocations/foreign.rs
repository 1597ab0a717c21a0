//! Other issuers that say when their sessions end: their keys, and what becomes of a statement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use postern_process::clock::instant;
use postern_process::tasks;
use postern_token::invalid::InvalidToken;
use postern_token::keys::KeySet;
use postern_token::revocations::RevocationDigest;
use postern_token::revocations::statement::{Ended, Expected, Form, InvalidStatement, Statement};
use postern_transport::http_client::ClientSettings;
use postern_transport::issuer::Purpose;
use postern_transport::issuer::key_set::{KeySetSettings, KeySetSource};
use tokio::sync::Mutex;
use tracing::warn;

use super::entry::StatementDigests;
use super::{KEEP_AFTER_EXPIRY, Revocation};

/// Time from connecting to the last byte of a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Intervals of fetches: of keys that are known, of those that a statement lacks, and of the first ones. Anyone
/// can send statements, so their number fetches nothing.
const FETCH_EVERY: Duration = Duration::from_secs(60);
const FETCH_NEWER_EVERY: Duration = Duration::from_secs(10);
const FETCH_FIRST_EVERY: Duration = Duration::from_secs(1);
/// Age up to which keys count that cannot be fetched again.
const MAX_KEY_AGE: Duration = Duration::from_secs(86_400);
/// Seconds for which a logout token counts. Issuers that get no response send the same one again.
const MAX_LOGOUT_AGE: i64 = 600;

/// The settings of one issuer.
#[derive(Debug)]
pub(crate) struct ForeignIssuerSettings {
    pub(crate) issuer: String,
    /// The accepted `aud`.
    pub(crate) clients: Vec<String>,
    /// Seconds for which its access tokens may be valid.
    pub(crate) token_lifetime: i64,
    /// True if the end of a session ends every token of its user.
    pub(crate) ends_users: bool,
    pub(crate) keys: KeySetSettings,
}

/// One issuer, and its keys.
#[derive(Debug)]
pub(crate) struct ForeignIssuer {
    issuer: String,
    clients: Vec<String>,
    token_lifetime: i64,
    ends_users: bool,
    known: Arc<ArcSwapOption<KnownKeys>>,
    source: Arc<Mutex<KeySource>>,
}

/// The keys of the last fetch that brought some.
#[derive(Debug)]
struct KnownKeys {
    keys: Arc<KeySet>,
    fetched: Instant,
}

#[derive(Debug)]
struct KeySource {
    source: KeySetSource,
    known: Arc<ArcSwapOption<KnownKeys>>,
    /// The last fetch, also one that failed.
    tried: Option<Instant>,
}

/// The reason why nothing has ended.
#[derive(Debug)]
pub(crate) enum NotVerified {
    Invalid(InvalidStatement),
    /// Its issuer's keys cannot be fetched.
    NoKeys,
}

impl From<InvalidStatement> for NotVerified {
    fn from(invalid: InvalidStatement) -> Self {
        Self::Invalid(invalid)
    }
}

impl ForeignIssuer {
    /// Opens the source of its keys, which are fetched when the first statement comes.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub(crate) fn new(settings: ForeignIssuerSettings) -> Result<Self, String> {
        let client = ClientSettings {
            named: settings.keys.tls.settings,
            files: "certificates for an issuer of [[logout]]",
            user_agent: Some(concat!("postern-auth-server/", env!("CARGO_PKG_VERSION"))),
            is_traced: true,
            timeout: TIMEOUT,
            ..ClientSettings::default()
        };
        let mut source = KeySetSource::new(settings.keys, client);
        if let Some(warning) = source.open()? {
            warn!("[[logout]] {}: {warning}", settings.issuer);
        }
        let known = Arc::default();
        Ok(Self {
            issuer: settings.issuer,
            clients: settings.clients,
            token_lifetime: settings.token_lifetime,
            ends_users: settings.ends_users,
            known: Arc::clone(&known),
            source: Arc::new(Mutex::new(KeySource {
                source,
                known,
                tried: None,
            })),
        })
    }

    /// Returns its `iss`.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Verifies a statement, and returns the revocations that follow from it.
    ///
    /// # Errors
    /// [`NotVerified`]
    pub(crate) async fn verified(
        &self,
        form: Form,
        token: &str,
        now: i64,
    ) -> Result<Vec<Revocation>, NotVerified> {
        let expected = Expected {
            issuer: &self.issuer,
            audiences: &self.clients,
            max_age: match form {
                Form::LogoutToken => MAX_LOGOUT_AGE,
                // A transmitter may send it late: older ones would end tokens that have expired.
                Form::SecurityEvent => self.token_lifetime,
            },
        };
        let keys = self.keys(Purpose::Tick).await?;
        let mut verified = Statement::verify(form, &keys, token, expected, now);
        if verified == Err(InvalidToken::KeyUnknown.into()) {
            let newer = self.keys(Purpose::UnknownKey).await?;
            verified = Statement::verify(form, &newer, token, expected, now);
        }
        let statement = verified?;
        let digests = StatementDigests {
            id: RevocationDigest::for_statement(&self.issuer, &statement.id),
            token: RevocationDigest::for_text(token),
        };
        // Tokens from before the logout may seem to be later where the issuer's clock is ahead.
        let time = now.max(statement.issued_at);
        let ended = statement.ended.into_iter();
        Ok(ended.map(|it| self.revocation(it, digests, time)).collect())
    }

    fn revocation(&self, ended: Ended, statement: StatementDigests, time: i64) -> Revocation {
        let ended = match ended {
            Ended::Session {
                user: Some(user), ..
            } if self.ends_users => Ended::User(user),
            ended => ended,
        };
        let live = time
            .saturating_add(self.token_lifetime)
            .saturating_add(KEEP_AFTER_EXPIRY);
        Revocation::for_statement(&self.issuer, ended, statement, time).until(live, live)
    }

    async fn keys(&self, purpose: Purpose) -> Result<Arc<KeySet>, NotVerified> {
        let (source, issuer) = (Arc::clone(&self.source), self.issuer.clone());
        // Another statement fetches: a key server that hangs delays that one alone.
        if purpose == Purpose::Tick
            && source.try_lock().is_err()
            && let Some(keys) = KnownKeys::young(&self.known)
        {
            return Ok(keys);
        }
        // To its end: clients that hang up would otherwise keep the keys of others away.
        let fetched = tasks::spawn(async move { source.lock().await.keys(purpose, &issuer).await });
        fetched.await.ok().flatten().ok_or(NotVerified::NoKeys)
    }
}

impl KnownKeys {
    /// Returns keys that are not too old.
    fn young(known: &ArcSwapOption<Self>) -> Option<Arc<KeySet>> {
        let known = known.load_full()?;
        let is_young = instant().saturating_duration_since(known.fetched) <= MAX_KEY_AGE;
        is_young.then(|| Arc::clone(&known.keys))
    }
}

impl KeySource {
    /// Returns the keys, fetched anew where that is due.
    async fn keys(&mut self, purpose: Purpose, issuer: &str) -> Option<Arc<KeySet>> {
        let (known, now) = (self.known.load_full(), instant());
        let interval = match (&known, purpose) {
            (None, _) => FETCH_FIRST_EVERY,
            (Some(_), Purpose::UnknownKey) => FETCH_NEWER_EVERY,
            (Some(_), Purpose::Tick) => FETCH_EVERY,
        };
        if self.tried.is_none_or(|tried| now >= tried + interval) {
            self.tried = Some(now);
            let keys = match self.source.fetch(purpose).await {
                Ok(Some(keys)) => Some(Arc::new(keys)),
                Ok(None) => known.map(|known| Arc::clone(&known.keys)),
                Err(error) => {
                    warn!(issuer, %error, "keys of an issuer of [[logout]] not fetched");
                    None
                }
            };
            if let Some(keys) = keys {
                let fetched = KnownKeys { keys, fetched: now };
                self.known.store(Some(Arc::new(fetched)));
            }
        }
        KnownKeys::young(&self.known)
    }
}
