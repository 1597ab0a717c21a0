//! All metrics of this program.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use contract::rejection::Rejection;
use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use runtime::histogram::{DurationHistogram, REQUEST_BOUNDS, micros};
use runtime::metrics::register_renamed;
use runtime::telemetry;
use runtime::tls::CertificateMetrics;

use crate::audit::events::{KeyEvent, KeyEventKind};

/// `ok`, or a reason code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// A listed key and its role.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Key {
    kid: String,
    role: &'static str,
}

/// The kind of a revoked entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RevocationKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Buckets from ECDSA and HMAC on an idle machine to RSA on a busy one.
const SIGNING_BOUNDS: [Duration; 10] =
    micros([25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000]);

/// Label of all unregistered applications: attackers must not create labels.
const OTHER_APPLICATION: &str = "other";

pub(crate) const OK: &str = "ok";

/// The usual ends of a login.
const LOGIN_OUTCOMES: [&str; 6] = [
    OK,
    Rejection::LoginFailed.reason(),
    Rejection::LoginIncomplete.reason(),
    Rejection::TooManyAttempts.reason(),
    Rejection::ServerBusy.reason(),
    Rejection::StoreUnavailable.reason(),
];

/// Rejections of the sidecar alone.
const OF_SIDECAR: [Rejection; 11] = [
    Rejection::UpgradeNotAllowed,
    Rejection::CrossSite,
    Rejection::InsufficientScope,
    Rejection::ClaimNotAllowed,
    Rejection::NoRule,
    Rejection::AuthKeysStale,
    Rejection::RevocationsStale,
    Rejection::IdentityTooLarge,
    Rejection::UpstreamUnavailable,
    Rejection::UpstreamMalformed,
    Rejection::UpstreamTimeout,
];

/// Classes of the statuses that this server sends.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Grants with their usual ends, besides `ok`.
const TOKEN_OUTCOMES: [(&str, Rejection); 2] = [
    ("client_credentials", Rejection::ApplicationUnknown),
    ("refresh_token", Rejection::GrantInvalid),
];

/// The class of a response's status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    code: &'static str,
}

impl Class {
    fn of(status: StatusCode) -> Self {
        let number = usize::from(status.as_u16() / 100);
        let code = CLASSES.get(number.wrapping_sub(2));
        let code = code.copied().unwrap_or_default();
        Self { code }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Retrieval {
    app_id: String,
    outcome: &'static str,
}

/// The grant of a token request: a known one, or `other`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenGrant {
    grant: &'static str,
    outcome: &'static str,
}

/// An event in the life of sessions with refresh tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    Begun,
    /// A login got no refresh token.
    NotStored,
    Ended,
    /// Ended, because a refresh token was used twice.
    Reused,
}

impl SessionEvent {
    const ALL: [Self; 4] = [Self::Begun, Self::NotStored, Self::Ended, Self::Reused];

    const fn label(self) -> SessionLabel {
        SessionLabel {
            event: match self {
                Self::Begun => "begun",
                Self::NotStored => "not_stored",
                Self::Ended => "ended",
                Self::Reused => "reused",
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabel {
    event: &'static str,
}

#[derive(Debug, Clone)]
struct SigningTime(DurationHistogram);

impl Default for SigningTime {
    fn default() -> Self {
        Self(DurationHistogram::new(&SIGNING_BOUNDS))
    }
}

#[derive(Debug, Clone)]
struct RequestTime(DurationHistogram);

impl Default for RequestTime {
    fn default() -> Self {
        Self(DurationHistogram::new(&REQUEST_BOUNDS))
    }
}

/// The metrics; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    requests: Family<Class, Counter>,
    request_time: RequestTime,
    logins: Family<Outcome, Counter>,
    key_retrievals: Family<Retrieval, Counter>,
    tokens_issued: Family<TokenGrant, Counter>,
    sessions: Family<SessionLabel, Counter>,
    store_up: Gauge,
    registered_applications: Gauge,
    unreadable_applications: Gauge,
    clock_skew: Gauge,
    application_files_unusable: Gauge,
    listed_keys: Family<Key, Gauge>,
    /// Labels in `listed_keys`, which cannot be enumerated.
    exported_keys: Arc<Mutex<HashSet<Key>>>,
    key_rotations: Counter,
    key_revocations: Counter,
    revocations: Family<RevocationKind, Gauge>,
    signing: SigningTime,
    refusals: Family<Reason, Counter>,
    builtin_users: Gauge,
    users: Gauge,
    users_uncommon_cost: Gauge,
    users_file_usable: Gauge,
    pub(crate) tls: CertificateMetrics,
    registry_registered: Gauge,
}

impl Metrics {
    /// Registers the metrics of every server.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("postern_auth_server_build", "The running program", build);
        registry.register(
            "postern_auth_server_log_lines_dropped",
            "Log lines that were dropped because the log was not read",
            telemetry::DroppedLines,
        );
        self.initialize();
        registry.register(
            "postern_auth_server_requests",
            "Requests by the class of the response's status",
            self.requests.clone(),
        );
        registry.register(
            "postern_auth_server_request_duration_seconds",
            "Time from the head of a request to its response",
            self.request_time.0.clone(),
        );
        registry.register(
            "postern_auth_server_logins",
            "Logins by outcome",
            self.logins.clone(),
        );
        registry.register(
            "postern_auth_server_key_retrievals",
            "Retrievals of the verification key by registered application and outcome",
            self.key_retrievals.clone(),
        );
        registry.register(
            "postern_auth_server_tokens_issued",
            "Token requests by grant and outcome; ok: a token was issued",
            self.tokens_issued.clone(),
        );
        registry.register(
            "postern_auth_server_store_up",
            "1 if the last poll of the key store succeeded",
            self.store_up.clone(),
        );
        registry.register(
            "postern_auth_server_registered_applications",
            "Applications that may fetch the verification key; while there is none, any client may",
            self.registered_applications.clone(),
        );
        registry.register(
            "postern_auth_server_unreadable_applications",
            "Records of applications in the store that this server cannot read",
            self.unreadable_applications.clone(),
        );
        registry.register(
            "postern_auth_server_clock_skew_seconds",
            "By how much this machine's clock is ahead of the key store's; 0 where the store has none",
            self.clock_skew.clone(),
        );
        registry.register(
            "postern_auth_server_key_info",
            "The listed keys by name and role (current, next, retired); always 1",
            self.listed_keys.clone(),
        );
        registry.register(
            "postern_auth_server_key_rotations",
            "Times that this server saw a next key become the current one",
            self.key_rotations.clone(),
        );
        registry.register(
            "postern_auth_server_key_revocations",
            "Revoked keys that this server heard of while it ran",
            self.key_revocations.clone(),
        );
        registry.register(
            "postern_auth_server_revocations",
            "Entries of the revocation list by kind: token, user, application",
            self.revocations.clone(),
        );
        register_renamed(
            registry,
            "postern_auth_server_token_signing_duration_seconds",
            "postern_auth_server_signing_seconds",
            "Time to make and sign a token",
            self.signing.0.clone(),
        );
        register_renamed(
            registry,
            "postern_auth_server_rejections",
            "postern_auth_server_refusals",
            "Refused requests by reason code",
            self.refusals.clone(),
        );
        registry.register(
            "postern_auth_server_builtin_users",
            "Whether any name with any password logs in as the built-in user",
            self.builtin_users.clone(),
        );
    }

    /// Creates the series that can be foreseen: a rate needs a first value.
    fn initialize(&self) {
        for outcome in LOGIN_OUTCOMES {
            drop(self.logins.get_or_create(&Outcome { outcome }));
        }
        for code in CLASSES {
            drop(self.requests.get_or_create(&Class { code }));
        }
        let here = Rejection::ALL.iter();
        for rejection in here.filter(|reason| !OF_SIDECAR.contains(reason)) {
            let reason = rejection.reason();
            drop(self.refusals.get_or_create(&Reason { reason }));
        }
        for (grant, usual) in TOKEN_OUTCOMES {
            for outcome in [OK, usual.reason()] {
                let labels = TokenGrant { grant, outcome };
                drop(self.tokens_issued.get_or_create(&labels));
            }
        }
        for outcome in [OK, Rejection::ApplicationUnknown.reason()] {
            let app_id = OTHER_APPLICATION.to_owned();
            let labels = Retrieval { app_id, outcome };
            drop(self.key_retrievals.get_or_create(&labels));
        }
    }

    /// Registers the metrics of `--applications-dir`.
    pub(crate) fn register_applications_dir(&self, registry: &mut Registry) {
        registry.register(
            "postern_auth_server_application_files_unusable",
            "Files of --applications-dir that could not be used at the last poll; 1 if the directory could not",
            self.application_files_unusable.clone(),
        );
    }

    /// Registers the metrics of a users file. Without one they are absent: a 0 would look like a
    /// failure.
    pub(crate) fn register_users_file(&self, registry: &mut Registry) {
        registry.register(
            "postern_auth_server_users",
            "Users in the users file",
            self.users.clone(),
        );
        registry.register(
            "postern_auth_server_users_uncommon_cost",
            "Users whose password takes another time to check than most, so that timing shows that they exist",
            self.users_uncommon_cost.clone(),
        );
        registry.register(
            "postern_auth_server_users_file_usable",
            "1 if the users file could be used at the last poll",
            self.users_file_usable.clone(),
        );
    }

    /// Registers the metrics of refresh tokens, from zero.
    pub(crate) fn register_sessions(&self, registry: &mut Registry) {
        for event in SessionEvent::ALL {
            drop(self.sessions.get_or_create(&event.label()));
        }
        registry.register(
            "postern_auth_server_sessions",
            "Sessions with refresh tokens by event: begun, not_stored (a login got no refresh token), ended, \
             reused (ended by a second use of a refresh token)",
            self.sessions.clone(),
        );
    }

    /// Registers the metrics of TLS.
    pub(crate) fn register_tls(&self, registry: &mut Registry) {
        self.tls
            .register(registry.sub_registry_with_prefix("postern_auth_server"));
    }

    /// Registers the metrics of the registration.
    pub(crate) fn register_registration(&self, registry: &mut Registry) {
        register_renamed(
            registry,
            "postern_auth_server_registry_listed",
            "postern_auth_server_registry_registered",
            "1 if the registry listed this server at the last poll",
            self.registry_registered.clone(),
        );
    }

    pub(crate) fn login(&self, outcome: &'static str) {
        self.logins.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn signed(&self, after: Duration) {
        self.signing.0.observe(after);
    }

    /// Counts a response; `after` is missing where its request could not be read.
    pub(crate) fn responded(&self, status: StatusCode, after: Option<Duration>) {
        self.requests.get_or_create(&Class::of(status)).inc();
        if let Some(after) = after {
            self.request_time.0.observe(after);
        }
    }

    pub(crate) fn rejected(&self, rejection: Rejection) {
        let reason = rejection.reason();
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    /// Counts a retrieval of the key; `app_id` is the id of a registered application.
    pub(crate) fn key_retrieval(&self, app_id: Option<String>, outcome: &'static str) {
        let app_id = app_id.unwrap_or_else(|| OTHER_APPLICATION.to_owned());
        let retrieval = Retrieval { app_id, outcome };
        self.key_retrievals.get_or_create(&retrieval).inc();
    }

    /// Counts a request at the token endpoint.
    pub(crate) fn token_request(&self, grant: &'static str, outcome: &'static str) {
        let request = TokenGrant { grant, outcome };
        self.tokens_issued.get_or_create(&request).inc();
    }

    pub(crate) fn session(&self, event: SessionEvent) {
        self.sessions.get_or_create(&event.label()).inc();
    }

    pub(crate) fn store_up(&self, up: bool) {
        self.store_up.set(i64::from(up));
    }

    pub(crate) fn registered_applications(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.registered_applications.set(count);
    }

    pub(crate) fn application_files_unusable(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.application_files_unusable.set(count);
    }

    pub(crate) fn unreadable_applications(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.unreadable_applications.set(count);
    }

    /// Sets the entries of the revocation list: tokens, users, applications.
    pub(crate) fn revocations(&self, counts: [usize; 3]) {
        for (kind, count) in ["token", "user", "application"].into_iter().zip(counts) {
            let gauge = self.revocations.get_or_create(&RevocationKind { kind });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn clock_skew(&self, seconds: i64) {
        self.clock_skew.set(seconds);
    }

    /// Sets the listed keys and counts the events.
    pub(crate) fn keys(
        &self,
        listed: impl Iterator<Item = (String, &'static str)>,
        events: &[KeyEvent],
    ) {
        self.export_keys(listed.map(|(kid, role)| Key { kid, role }).collect());
        for event in events {
            match event.kind {
                KeyEventKind::Promoted => drop(self.key_rotations.inc()),
                KeyEventKind::Revoked => drop(self.key_revocations.inc()),
                _ => {}
            }
        }
    }

    /// Leaves unchanged keys alone: a scrape in between must not see a server without keys.
    fn export_keys(&self, listed: HashSet<Key>) {
        let mut exported = self.exported_keys.lock();
        for new in listed.difference(&exported) {
            self.listed_keys.get_or_create(new).set(1);
        }
        for gone in exported.difference(&listed) {
            self.listed_keys.remove(gone);
        }
        *exported = listed;
    }

    pub(crate) fn builtin_users(&self) {
        self.builtin_users.set(1);
    }

    /// Sets the numbers of users; `uncommon` ones have a password of another cost than most.
    pub(crate) fn users(&self, count: usize, uncommon: usize) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.users.set(gauge(count));
        self.users_uncommon_cost.set(gauge(uncommon));
    }

    pub(crate) fn registered(&self, registered: bool) {
        self.registry_registered.set(i64::from(registered));
    }

    pub(crate) fn users_file_usable(&self, usable: bool) {
        self.users_file_usable.set(i64::from(usable));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use contract::keys::signing_type::SigningType;

    use runtime::file_watch::Transition;

    use super::*;
    use crate::keys::pair::tests::pair;
    use crate::keys::ring::KeyRing;
    use crate::keys::ring::rotation::Role;

    #[test]
    fn each_metric_stands_under_its_name() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.register_users_file(&mut registry);
        metrics.register_tls(&mut registry);
        metrics.register_registration(&mut registry);
        metrics.login(OK);
        metrics.key_retrieval(Some("orders".to_owned()), OK);
        metrics.key_retrieval(None, "application_unknown");
        metrics.token_request("client_credentials", OK);
        metrics.signed(Duration::from_micros(400));
        metrics.rejected(Rejection::LoginFailed);
        metrics.responded(StatusCode::UNAUTHORIZED, Some(Duration::from_millis(7)));
        metrics.store_up(true);
        metrics.registered_applications(2);
        metrics.unreadable_applications(1);
        metrics.clock_skew(-7);
        let start = KeyRing::of(Arc::new(pair(SigningType::Ecdsa)));
        let kid = start.current().id().clone();
        let ring = start.publish(Arc::new(pair(SigningType::Ecdsa)), 0, 150);
        let event = |kind| KeyEvent {
            changed_by: None,
            kind,
            kid: kid.clone(),
            at: None,
        };
        let events = [KeyEventKind::Promoted, KeyEventKind::Revoked].map(event);
        metrics.keys(ring.listed(), &events);
        metrics.builtin_users();
        metrics.users(3, 1);
        metrics.users_file_usable(true);
        let unusable = Transition::Unusable("why".to_owned());
        metrics.tls.report(7, Some(&unusable));
        metrics.tls.report(8, Some(&Transition::Replaced));
        metrics.registered(true);

        let text = exposition(&registry);
        for line in [
            r#"postern_auth_server_requests_total{code="4xx"} 1"#,
            r#"postern_auth_server_requests_total{code="5xx"} 0"#,
            r#"postern_auth_server_request_duration_seconds_bucket{le="0.005"} 0"#,
            r#"postern_auth_server_request_duration_seconds_bucket{le="0.01"} 1"#,
            r#"postern_auth_server_tokens_issued_total{grant="refresh_token",outcome="grant_invalid"} 0"#,
            r#"postern_auth_server_key_retrievals_total{app_id="other",outcome="ok"} 0"#,
            r#"postern_auth_server_rejections_total{reason="grant_invalid"} 0"#,
            r#"postern_auth_server_logins_total{outcome="ok"} 1"#,
            r#"postern_auth_server_key_retrievals_total{app_id="orders",outcome="ok"} 1"#,
            r#"postern_auth_server_key_retrievals_total{app_id="other",outcome="application_unknown"} 1"#,
            r#"postern_auth_server_logins_total{outcome="login_failed"} 0"#,
            r#"postern_auth_server_token_signing_duration_seconds_bucket{le="0.0005"} 1"#,
            r#"postern_auth_server_tokens_issued_total{grant="client_credentials",outcome="ok"} 1"#,
            r#"postern_auth_server_signing_seconds_bucket{le="0.0005"} 1"#,
            r#"postern_auth_server_rejections_total{reason="login_failed"} 1"#,
            r#"postern_auth_server_refusals_total{reason="login_failed"} 1"#,
            r#"postern_auth_server_rejections_total{reason="store_unavailable"} 0"#,
            "postern_auth_server_store_up 1",
            "postern_auth_server_registered_applications 2",
            "postern_auth_server_unreadable_applications 1",
            "postern_auth_server_clock_skew_seconds -7",
            &format!(r#"postern_auth_server_key_info{{kid="{kid}",role="current"}} 1"#),
            "postern_auth_server_key_rotations_total 1",
            "postern_auth_server_key_revocations_total 1",
            "postern_auth_server_builtin_users 1",
            "postern_auth_server_users 3",
            "postern_auth_server_users_uncommon_cost 1",
            "postern_auth_server_users_file_usable 1",
            "postern_auth_server_tls_certificate_not_after_seconds 8",
            r#"postern_auth_server_tls_certificate_reloads_total{outcome="replaced"} 1"#,
            r#"postern_auth_server_tls_certificate_reloads_total{outcome="refused"} 1"#,
            "postern_auth_server_tls_files_usable 1",
            "postern_auth_server_registry_registered 1",
            "postern_auth_server_registry_listed 1",
            "postern_auth_server_tls_certificate_not_after_timestamp_seconds 8",
            "postern_auth_server_tls_last_reload_successful 1",
            concat!(
                r#"postern_auth_server_build_info{version=""#,
                env!("CARGO_PKG_VERSION"),
                r#""} 1"#
            ),
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn what_is_not_configured_is_not_said_to_be_broken() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let text = exposition(&registry);
        for name in ["tls", "users ", "users_file", "registry_"] {
            let name = format!("postern_auth_server_{name}");
            assert!(!text.contains(&name), "{name}\n{text}");
        }
    }

    #[test]
    fn a_key_that_stays_is_shown_all_the_while() {
        let metrics = Metrics::default();
        let start = KeyRing::of(Arc::new(pair(SigningType::Ecdsa)));
        let kid = start.current().id().to_string();
        metrics.keys(start.listed(), &[]);
        let key = |role: Role| Key {
            kid: kid.clone(),
            role: role.as_str(),
        };
        let exported = metrics.listed_keys.get_or_create_owned(&key(Role::Current));
        exported.set(7);
        metrics.keys(start.listed(), &[]);
        assert_eq!(exported.get(), 7);

        let other = KeyRing::of(Arc::new(pair(SigningType::Ecdsa)));
        metrics.keys(other.listed(), &[]);
        assert!(metrics.listed_keys.get(&key(Role::Current)).is_none());
    }

    fn exposition(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }
}
