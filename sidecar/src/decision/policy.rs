//! The settings of every decision, which a reload replaces as a whole.

use std::sync::Arc;

use postern_contract::interceptor::Interceptor;
use postern_contract::rules::AccessRules;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;
use postern_token::possession::nonces::NonceKeys;
use postern_token::possession::seen_proofs::SeenProofs;
use postern_token::sources::bearer::Bearer;
use postern_transport::net::shares::Holder;

use super::issuers::Issuers;
use super::protected_resource::ProtectedResource;
use crate::identity::client_certificate::CertificateField;
use crate::identity::user_header::UserHeader;

/// Rules by which every request is authorized.
#[derive(Debug, Clone)]
pub(crate) struct AuthPolicy {
    pub(crate) interceptor: Interceptor,
    pub(crate) issuers: Issuers,
    pub(crate) user_header: UserHeader,
    pub(crate) access_rules: AccessRules,
    /// The end of report-only mode, in seconds since the epoch; `None` unless it is configured.
    pub(crate) reporting_until: Option<i64>,
    /// False if the protocol of the upstream has no upgrade.
    pub(crate) carries_websockets: bool,
    /// Without any, no metadata are served, and challenges name none.
    pub(crate) resources: Arc<[ProtectedResource]>,
    pub(crate) possession: PossessionPolicy,
    /// Counts the changes that make cached tokens obsolete.
    pub(super) generation: u64,
}

impl AuthPolicy {
    pub(crate) fn new(interceptor: Interceptor, issuers: Issuers, user_header: UserHeader) -> Self {
        let policy = Self {
            interceptor: interceptor.with_token_headers(issuers.token_headers().to_vec()),
            issuers,
            user_header,
            access_rules: AccessRules::default(),
            reporting_until: None,
            carries_websockets: true,
            resources: Arc::default(),
            possession: PossessionPolicy::default(),
            generation: 0,
        };
        // Without rules too: this gives the issuers the claims of the user header.
        policy.with_access_rules(AccessRules::default())
    }

    /// Sets the rules that a verified token has to satisfy.
    pub(crate) fn with_access_rules(mut self, rules: AccessRules) -> Self {
        // In this order: `verify_with` of `authorize` splits them after those of the header.
        let mut claims = self.user_header.extra_claims();
        claims.extend_from_slice(rules.claims());
        self.issuers.set_extra_claims(&claims);
        self.interceptor = self.interceptor.with_rules(!rules.rules().is_empty());
        self.access_rules = rules;
        self
    }

    /// Returns the names of the rules, in order.
    pub(crate) fn rule_names(&self) -> impl Iterator<Item = &str> {
        self.access_rules
            .rules()
            .iter()
            .map(|rule| rule.name.as_str())
    }

    /// Returns the token of a request; `None` without one, and for a malformed one.
    pub(crate) fn token<'a>(&self, request: &'a ReceivedHead) -> Option<Bearer<'a>> {
        let opens_websocket = request.kind == RequestKind::WebSocket;
        self.interceptor
            .token(&request.headers, opens_websocket)
            .ok()?
    }

    /// Replaces `former`: its cached tokens stay valid only if both policies read a token alike, and
    /// its used proofs stay used.
    pub(crate) fn next_generation(&mut self, former: &Self) {
        self.possession.seen = Arc::clone(&former.possession.seen);
        let same = self.issuers == former.issuers
            && self.user_header == former.user_header
            && self.access_rules == former.access_rules;
        self.generation = former.generation + u64::from(!same);
    }
}

/// The checks of what tokens are bound to.
#[derive(Debug, Clone, Default)]
pub(crate) struct PossessionPolicy {
    /// Where trusted proxies send the certificate of their client.
    pub(crate) certificate_field: Option<CertificateField>,
    /// Set if proofs need a nonce.
    pub(crate) nonces: Option<NonceKeys>,
    /// Kept over reloads.
    pub(crate) seen: Arc<SeenProofs<Holder>>,
}
