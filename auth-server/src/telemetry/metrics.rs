//! All metrics of this program.

use std::time::Duration;

use http::StatusCode;
use postern_contract::rejection::{Maker, Rejection};
use postern_process::clock::unix_now;
use postern_process::metrics::histogram::{DurationHistogram, REQUEST_BOUNDS, micros};
use postern_process::metrics::{Label, LabelText, counters, counters_by};
use postern_process::{metrics, named_enum};
use postern_transport::admin;
use postern_transport::tls::CertificateMetrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

pub(crate) const PREFIX: &str = "postern_auth_server";

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

/// Classes of the statuses that this server sends.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The usual ends of token requests by grant.
const TOKEN_OUTCOMES: [(&str, &str); 4] = [
    ("client_credentials", OK),
    ("client_credentials", Rejection::ApplicationUnknown.reason()),
    ("refresh_token", OK),
    ("refresh_token", Rejection::GrantInvalid.reason()),
];

/// The usual ends of retrievals by unregistered applications.
const RETRIEVAL_OUTCOMES: [&str; 2] = [OK, Rejection::ApplicationUnknown.reason()];

type Labels = [(&'static str, LabelText); 2];

/// Returns the labels of a retrieval by a registered application, or by any other one.
fn retrieval(app_id: Option<String>, outcome: &str) -> Labels {
    let app_id = app_id.unwrap_or_else(|| OTHER_APPLICATION.to_owned());
    [("app_id", app_id.into()), ("outcome", outcome.into())]
}

fn token_request((grant, outcome): (&str, &str)) -> Labels {
    [("grant", grant.into()), ("outcome", outcome.into())]
}

named_enum! {
    /// An event in the life of sessions with refresh tokens.
    pub(crate) enum SessionEvent {
        Begun = "begun",
        /// A login got no refresh token.
        NotStored = "not_stored",
        Ended = "ended",
        /// Ended, because an older refresh token was used.
        Reused = "reused",
    }
}

named_enum! {
    /// The outcome of a statement of another issuer.
    pub(crate) enum StatementOutcome {
        Ended = "ended",
        /// It has ended its sessions before.
        Repeated = "repeated",
        /// An event that ends no session.
        Ignored = "ignored",
        Rejected = "rejected",
        /// Not now: the keys of its issuer or the store are away, or a client is over its limit.
        Unavailable = "unavailable",
    }
}

metrics! {
    /// The metrics of every server.
    pub(crate) struct Metrics {
        /// Requests by the class of the response's status
        requests: Family<Label, Counter> = counters_by("code", CLASSES),
        /// Time from the head of a request to its response
        request_duration_seconds: DurationHistogram = DurationHistogram::new(&REQUEST_BOUNDS),
        /// Logins by outcome
        logins: Family<Label, Counter> = counters_by("outcome", LOGIN_OUTCOMES),
        /// Retrievals of the verification key by registered application and outcome
        key_retrievals: Family<Labels, Counter>
            = counters(RETRIEVAL_OUTCOMES.map(|outcome| retrieval(None, outcome))),
        /// Token requests by grant and outcome; ok: a token was issued
        tokens_issued: Family<Labels, Counter> = counters(TOKEN_OUTCOMES.map(token_request)),
        /// 1 if the last poll could read the key store and write to it
        pub(crate) store_up: Gauge,
        /// Registered applications; with 0, any client may fetch the verification key
        pub(crate) registered_applications: Gauge,
        /// Files of --applications-dir that could not be used at the last poll; 1 if the directory could not
        pub(crate) application_files_unusable: Gauge,
        /// Sessions with refresh tokens by event: begun, not_stored (a login got no refresh token), ended,
        /// reused (ended by a late second use of a refresh token)
        sessions: Family<Label, Counter>
            = counters_by("event", SessionEvent::ALL.map(SessionEvent::name)),
        /// Logout tokens and security events of other issuers by outcome: ended, repeated, ignored (it ends no
        /// session), rejected, unavailable (not now: keys or store are away, a limit)
        backchannel_logouts: Family<Label, Counter>
            = counters_by("outcome", StatementOutcome::ALL.map(StatementOutcome::name)),
        /// By how much this machine's clock is ahead of the key store's; 0 where the store has none
        pub(crate) clock_skew_seconds: Gauge,
        /// The listed keys by name and role (current, next, retired); always 1
        key_info: Family<Labels, Gauge>,
        /// Revocations in the log of the store by kind: token, user, application
        revocations: Family<Label, Gauge>,
        /// Revocations that this server wrote back into an older copy of the store
        pub(crate) revocations_restored: Counter,
        /// Time to make and sign a token
        pub(crate) token_signing_duration_seconds: DurationHistogram
            = DurationHistogram::new(&SIGNING_BOUNDS),
        /// Connections closed at once because all others had requests in flight
        pub(crate) connections_rejected: Counter,
        /// Connections without a request in flight that were closed for new ones
        pub(crate) connections_evicted: Counter,
        /// Rejected requests by reason code
        rejections: Family<Label, Counter>
            = counters_by("reason", Rejection::made_by(Maker::AuthServer).map(Rejection::reason)),
        /// Time of the last rejection in seconds since 1970 by reason code
        last_rejection_timestamp_seconds: Family<Label, Gauge>,
        /// 1 if any name with any password logs in as the built-in user
        pub(crate) builtin_users: Gauge,
    }
    beside {
        pub(crate) users_file: UsersFileMetrics,
        pub(crate) tls: CertificateMetrics,
        pub(crate) registration: RegistrationMetrics,
    }
}

metrics! {
    /// Metrics of a users file. Without one they are absent: a 0 would look like a failure.
    pub(crate) struct UsersFileMetrics {
        /// Users in the users file
        pub(crate) users: Gauge,
        /// 1 if the users file could be used at the last poll
        pub(crate) users_file_usable: Gauge,
    }
}

metrics! {
    /// Metrics of the registration at Nacos.
    pub(crate) struct RegistrationMetrics {
        /// 1 if the last renewal at the registry succeeded
        pub(crate) registry_listed: Gauge,
    }
}

impl Metrics {
    /// Returns the registry with the metrics of every server.
    pub(crate) fn registry(&self) -> Registry {
        let mut registry = admin::registry(PREFIX, env!("CARGO_PKG_VERSION"));
        self.register(&mut registry);
        registry
    }

    pub(crate) fn login(&self, outcome: &'static str) {
        self.logins.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a response; `after` is missing where its request could not be read.
    pub(crate) fn responded(&self, status: StatusCode, after: Option<Duration>) {
        let number = usize::from(status.as_u16() / 100).wrapping_sub(2);
        let class = CLASSES.get(number).copied().unwrap_or_default();
        self.requests.get_or_create(&[("code", class)]).inc();
        if let Some(after) = after {
            self.request_duration_seconds.observe(after);
        }
    }

    pub(crate) fn rejected(&self, rejection: Rejection) {
        let reason = ("reason", rejection.reason());
        self.rejections.get_or_create(&[reason]).inc();
        self.last_rejection_timestamp_seconds
            .get_or_create(&[reason])
            .set(unix_now());
    }

    /// Counts a retrieval of the key; `app_id` is the id of a registered application.
    pub(crate) fn key_retrieval(&self, app_id: Option<String>, outcome: &'static str) {
        self.key_retrievals
            .get_or_create(&retrieval(app_id, outcome))
            .inc();
    }

    /// Counts a request at the token endpoint.
    pub(crate) fn token_request(&self, grant: &'static str, outcome: &'static str) {
        self.tokens_issued
            .get_or_create(&token_request((grant, outcome)))
            .inc();
    }

    pub(crate) fn statement(&self, outcome: StatementOutcome) {
        self.backchannel_logouts
            .get_or_create(&[("outcome", outcome.name())])
            .inc();
    }

    pub(crate) fn session(&self, event: SessionEvent) {
        self.sessions
            .get_or_create(&[("event", event.name())])
            .inc();
    }

    /// Sets the revocations in the log: tokens, users, applications.
    pub(crate) fn revocations(&self, counts: [usize; 3]) {
        for (kind, count) in ["token", "user", "application"].into_iter().zip(counts) {
            self.revocations
                .get_or_create(&[("kind", kind)])
                .set(gauge(count));
        }
    }

    /// Sets the listed keys, by name and role.
    pub(crate) fn keys(&self, listed: impl Iterator<Item = (String, &'static str)>) {
        self.key_info.clear();
        for (kid, role) in listed {
            let labels = [("kid", kid.into()), ("role", role.into())];
            self.key_info.get_or_create(&labels).set(1);
        }
    }
}

/// Returns a count as the value of a gauge.
pub(crate) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn series_begin_at_zero_and_count_in_their_buckets() {
        let metrics = Metrics::default();
        let registry = metrics.registry();
        metrics.key_retrieval(Some("a\"b\\c".to_owned()), OK);
        metrics.key_retrieval(None, "application_unknown");
        metrics
            .token_signing_duration_seconds
            .observe(Duration::from_micros(400));
        metrics.responded(StatusCode::UNAUTHORIZED, Some(Duration::from_millis(7)));
        metrics.clock_skew_seconds.set(-7);

        let text = exposition(&registry);
        for line in [
            r#"postern_auth_server_requests_total{code="5xx"} 0"#,
            r#"postern_auth_server_request_duration_seconds_bucket{le="0.005"} 0"#,
            r#"postern_auth_server_request_duration_seconds_bucket{le="0.01"} 1"#,
            r#"postern_auth_server_tokens_issued_total{grant="refresh_token",outcome="grant_invalid"} 0"#,
            r#"postern_auth_server_key_retrievals_total{app_id="other",outcome="ok"} 0"#,
            r#"postern_auth_server_rejections_total{reason="grant_invalid"} 0"#,
            r#"postern_auth_server_key_retrievals_total{app_id="a\"b\\c",outcome="ok"} 1"#,
            r#"postern_auth_server_key_retrievals_total{app_id="other",outcome="application_unknown"} 1"#,
            r#"postern_auth_server_token_signing_duration_seconds_bucket{le="0.0005"} 1"#,
            r#"postern_auth_server_rejections_total{reason="store_unavailable"} 0"#,
            "postern_auth_server_clock_skew_seconds -7",
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
        let registry = metrics.registry();
        let text = exposition(&registry);
        for name in ["tls", "users ", "users_file", "registry_"] {
            let name = format!("postern_auth_server_{name}");
            assert!(!text.contains(&name), "{name}\n{text}");
        }
    }

    fn exposition(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }
}
