//! The keys of one other issuer, fetched when its statements need them.
//!
//! Anyone can send statements. So many statements share one fetch, one fetch follows another after a pause,
//! and each fetch runs to its end even if the client that began it hangs up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use postern_process::clock::{instant, unix_now};
use postern_process::tasks;
use postern_token::keys::KeySet;
use postern_token::times::{duration, moment};
use postern_transport::admin::health::ConditionState;
use postern_transport::issuer::Purpose;
use postern_transport::issuer::key_set::KeySetSource;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{sleep_until, timeout};
use tracing::warn;

/// Age of the keys from which on a statement begins a fetch.
const FETCH_EVERY: Duration = Duration::from_secs(60);
/// Pause between two fetches.
const PAUSE: Duration = Duration::from_secs(2);
/// Time for which a statement waits for keys that are newer than the known ones.
const WAIT_FOR_NEWER: Duration = Duration::from_secs(1);
/// Age up to which keys count that cannot be fetched again.
const MAX_AGE: Duration = Duration::from_secs(86_400);

/// The keys of one issuer.
#[derive(Debug, Clone)]
pub(super) struct ForeignKeys {
    known: Arc<ArcSwapOption<KnownKeys>>,
    /// The time and the error of the last fetch, if it failed.
    failed: Arc<ArcSwapOption<String>>,
    fetches: Arc<Mutex<Fetches>>,
}

/// The keys of the last fetch that brought keys.
#[derive(Debug)]
struct KnownKeys {
    keys: Arc<KeySet>,
    fetched: Instant,
}

/// The source, and its last fetch.
#[derive(Debug)]
struct Fetches {
    source: KeySetSource,
    issuer: String,
    last: Option<Fetch>,
}

#[derive(Debug, Clone, Copy)]
struct Fetch {
    began: Instant,
    ended: Instant,
    has_succeeded: bool,
}

impl ForeignKeys {
    pub(super) fn new(source: KeySetSource, issuer: String) -> Self {
        let fetches = Fetches {
            source,
            issuer,
            last: None,
        };
        Self {
            known: Arc::default(),
            failed: Arc::default(),
            fetches: Arc::new(Mutex::new(fetches)),
        }
    }

    /// Returns the known keys, unless they are too old. A key server that hangs delays a statement hardly.
    pub(super) async fn present(&self) -> Option<Arc<KeySet>> {
        let Some(known) = self.young() else {
            return self.fetched(Purpose::Tick).await;
        };
        if instant().saturating_duration_since(known.fetched) < FETCH_EVERY {
            return Some(Arc::clone(&known.keys));
        }
        // The known keys still count, so a newer set is worth a short wait only.
        match timeout(WAIT_FOR_NEWER, self.fetched(Purpose::Tick)).await {
            Ok(Some(newer)) => Some(newer),
            _ => Some(Arc::clone(&known.keys)),
        }
    }

    /// Returns the keys of a fetch that begins from now on; `None` where it fails.
    pub(super) async fn fetched(&self, purpose: Purpose) -> Option<Arc<KeySet>> {
        let arrived = instant();
        let mut fetches = Arc::clone(&self.fetches).lock_owned().await;
        // A fetch that began while this call waited for the lock serves it too.
        if fetches.last.is_none_or(|last| last.began < arrived) {
            let fetching = tasks::spawn(self.clone().fetch(fetches, purpose));
            fetching.await.ok()?;
            fetches = Arc::clone(&self.fetches).lock_owned().await;
        }
        match fetches.last {
            Some(last) if last.has_succeeded => Some(Arc::clone(&self.young()?.keys)),
            _ => None,
        }
    }

    async fn fetch(self, mut fetches: OwnedMutexGuard<Fetches>, purpose: Purpose) {
        if let Some(last) = fetches.last {
            sleep_until((last.ended + PAUSE).into()).await;
        }
        let began = instant();
        let former = self.known.load_full();
        let keys = match fetches.source.fetch(purpose).await {
            Ok(Some(keys)) => Some(Arc::new(keys)),
            // The last response is still fresh.
            Ok(None) => former.map(|former| Arc::clone(&former.keys)),
            Err(error) => {
                let issuer = &fetches.issuer;
                warn!(issuer, %error, "keys of an issuer of [[logout]] not fetched");
                let at = moment(unix_now());
                let failed = format!("the fetch at {at} failed: {error}");
                self.failed.store(Some(Arc::new(failed)));
                None
            }
        };
        fetches.last = Some(Fetch {
            began,
            ended: instant(),
            has_succeeded: keys.is_some(),
        });
        if let Some(keys) = keys {
            self.failed.store(None);
            let fetched = KnownKeys {
                keys,
                fetched: began,
            };
            self.known.store(Some(Arc::new(fetched)));
        }
    }

    /// Returns the row of the readiness report.
    pub(super) fn condition(&self, issuer: &str) -> ConditionState {
        let mut note = match self.known.load_full() {
            Some(known) => {
                let age = instant().saturating_duration_since(known.fetched);
                format!("{issuer}: keys fetched {} ago", duration(age.as_secs()))
            }
            None => format!("{issuer}: keys not fetched yet"),
        };
        let failed = self.failed.load_full();
        if let Some(failed) = &failed {
            note = format!("{note}; {failed}; a logout tries again, and gets 503 without keys");
        }
        ConditionState::noted("logout_keys", note, failed.is_some())
    }

    fn young(&self) -> Option<Arc<KnownKeys>> {
        let known = self.known.load_full()?;
        let age = instant().saturating_duration_since(known.fetched);
        (age <= MAX_AGE).then_some(known)
    }
}
