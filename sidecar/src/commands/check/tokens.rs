//! The attack tokens, under the settings of this configuration.

use std::collections::BTreeSet;
use std::time::Instant;

use http::HeaderName;
use runtime::process::exit::ExitError;
use wire::keys::signing_type::SigningType;
use wire::keys::{KeySet, VerificationKey};
use wire::rejection::Rejection;
use wire::rules::AccessRules;

use super::attacks::{Attacks, KeyRows, authorize, unusable};
use super::{Outcome, paths, token_headers};
use crate::auth::authorize::{AuthPolicy, Decision};
use crate::cli::ServeArgs;
use crate::cli::policy_args::TokenArgs;
use crate::config::Config;
use crate::keys::current::CurrentKeys;
use crate::keys::source::SourceSettings;
use crate::keys::token_cache::TokenCacheConfig;

/// Tries all tokens on the rules of `config`; expectations follow from the flags alone.
///
/// # Errors
/// [`ExitError::Software`] for an unusable table.
pub(super) fn attack(
    args: &ServeArgs,
    config: &Config,
    attacks: &Attacks,
) -> Result<Outcome, ExitError> {
    let mut outcome = Outcome::default();
    let targets = targets(args, attacks)?;
    // The good token has no scope; `super::rules` tries the rules.
    let rules = config.rules.auth_policy.clone();
    let rules = rules.with_access_rules(AccessRules::default());
    for (rules, source, required) in issuers(args, config, &rules) {
        attack_issuer(
            args,
            &rules,
            (source, required),
            &targets,
            attacks,
            &mut outcome,
        )?;
    }
    token_headers::attack(args, &rules, (attacks, &targets), &mut outcome)?;
    Ok(outcome)
}

/// Returns each issuer alone, with its source of keys and what it requires; of tenants,
/// which have the same keys and rules, only the first.
fn issuers<'a>(
    args: &ServeArgs,
    config: &'a Config,
    rules: &'a AuthPolicy,
) -> Vec<(AuthPolicy, &'a SourceSettings, Required<'a>)> {
    let Some(issuers) = rules.issuers() else {
        let required = Required {
            issuer: args.issuer().is_some(),
            audience: !args.rules.tokens.audience.is_empty(),
            token_header: None,
        };
        return vec![(rules.clone(), &config.first_issuer.source, required)];
    };
    let sources: Vec<_> = config.issuers().map(|issuer| &issuer.source).collect();
    let mut seen = BTreeSet::new();
    let issuers = issuers.iter().filter(|issuer| seen.insert(issuer.keys));
    let of_issuer = issuers.filter_map(|issuer| {
        let required = Required {
            issuer: true,
            audience: !issuer.policy.audiences.is_empty(),
            token_header: issuer.token_header.as_ref(),
        };
        let rules = rules.only(issuer.policy.clone());
        Some((rules, *sources.get(issuer.keys)?, required))
    });
    of_issuer.collect()
}

/// Requirements of the settings of one issuer for its tokens.
#[derive(Debug, Clone, Copy)]
struct Required<'r> {
    issuer: bool,
    audience: bool,
    token_header: Option<&'r HeaderName>,
}

/// Tries all tokens on the rules of one issuer.
fn attack_issuer(
    args: &ServeArgs,
    rules: &AuthPolicy,
    (source, required): (&SourceSettings, Required<'_>),
    targets: &[String],
    attacks: &Attacks,
    outcome: &mut Outcome,
) -> Result<(), ExitError> {
    for key in &attacks.key {
        let signing_type = key.signing_type.parse().map_err(|error| unusable(&error))?;
        if is_possible(signing_type, source) {
            let trusted =
                VerificationKey::parse(signing_type, &key.key).map_err(|error| unusable(&error))?;
            let mut trial = Trial {
                args,
                required,
                targets,
                trusted,
                outcome,
            };
            trial.rejections(rules, attacks, key);
            trial.controls(rules, attacks, key);
        }
    }
    Ok(())
}

/// The configured type; other issuers than the auth server have public keys of any type.
fn is_possible(signing_type: SigningType, source: &SourceSettings) -> bool {
    match source {
        SourceSettings::AuthServer(settings) => settings.signing_type == signing_type,
        _ => signing_type != SigningType::Hmac,
    }
}

/// The user-details path, and a path of the service if one needs a token.
fn targets(args: &ServeArgs, attacks: &Attacks) -> Result<Vec<String>, ExitError> {
    let open = paths::PublicPaths::new(&args.rules, &attacks.path)?;
    Ok(open.protected().map(|path| open.full(path)).collect())
}

/// Header lines for each configured place of a token but the token headers.
pub(super) fn usual_locations(tokens: &TokenArgs, token: &str) -> Vec<Vec<String>> {
    let mut locations = vec![vec![format!("Authorization: Bearer {token}")]];
    if let Some(name) = &tokens.token_cookie {
        locations.push(vec![format!("Cookie: {name}={token}")]);
    }
    if tokens.websocket_token {
        let protocol = format!("Sec-WebSocket-Protocol: bearer, {token}");
        let handshake = [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ];
        locations.push([&[protocol][..], &handshake.map(str::to_owned)].concat());
    }
    locations
}

/// Returns the reason for which a token is rejected.
pub(super) fn reason_of(decision: Result<Decision, Rejection>) -> Option<&'static str> {
    match decision {
        // The token was accepted; the limit and the protocol are the service's, and its user may
        // have a name of another issuer's.
        Ok(_)
        | Err(Rejection::IdentityTooLarge | Rejection::UpgradeNotAllowed | Rejection::TokenUser) => {
            None
        }
        Err(rejection) => Some(rejection.reason()),
    }
}

/// One trusted key.
struct Trial<'t> {
    args: &'t ServeArgs,
    required: Required<'t>,
    targets: &'t [String],
    trusted: VerificationKey,
    outcome: &'t mut Outcome,
}

impl Trial<'_> {
    /// Requests and tokens that no configuration accepts.
    fn rejections(&mut self, rules: &AuthPolicy, attacks: &Attacks, key: &KeyRows) {
        let keys = self.keys();
        for row in &attacks.request {
            let fill = |text: &String| text.replace("{token}", &key.good);
            let lines: Vec<String> = row.lines.iter().map(fill).collect();
            let query = fill(&row.query);
            let found = self.reasons(rules, &keys, &[lines], &query, attacks.issued);
            self.compare(&row.name, &found, Some(&row.reason));
        }
        for row in &key.rejected {
            let found = self.reasons(
                rules,
                &keys,
                &self.locations(&row.token),
                "",
                attacks.issued,
            );
            self.compare(&row.name, &found, Some(&row.reason));
        }
    }

    /// The good token: rejected for issuer, then for audience, and without these accepted in time.
    fn controls(&mut self, rules: &AuthPolicy, attacks: &Attacks, key: &KeyRows) {
        let tokens = &self.args.rules.tokens;
        let leeway = i64::from(tokens.leeway.get());
        let (issued, expires) = (attacks.issued, attacks.expires);
        let Required {
            issuer, audience, ..
        } = self.required;
        let issuer = issuer.then_some(Rejection::TokenIssuer);
        let audience = audience.then_some(Rejection::TokenAudience);
        let no_exp = (!tokens.allow_no_exp).then_some(Rejection::TokenClaimMissing);

        let mut rules = rules.clone();
        // A mapping may read the user from claims that the good token does not have.
        rules.policy.mapping = None;
        self.control(&rules, "issuer", &key.good, issued, issuer.or(audience));
        rules.policy.issuer = None;
        self.control(&rules, "audience", &key.good, issued, audience);
        rules.policy.audiences.clear();
        for (name, now, expected) in [
            ("a good token", issued, None),
            ("nbf at the edge of the leeway", issued - leeway, None),
            (
                "nbf one second past the leeway",
                issued - leeway - 1,
                Some(Rejection::TokenNotYetValid),
            ),
            (
                "exp one second inside the leeway",
                expires + leeway - 1,
                None,
            ),
            (
                "exp at the edge of the leeway",
                expires + leeway,
                Some(Rejection::TokenExpired),
            ),
        ] {
            self.control(&rules, name, &key.good, now, expected);
        }
        self.control(&rules, "no exp", &key.without_exp, issued, no_exp);
    }

    fn control(
        &mut self,
        rules: &AuthPolicy,
        name: &str,
        token: &str,
        now: i64,
        expected: Option<Rejection>,
    ) {
        let found = self.reasons(rules, &self.keys(), &self.locations(token), "", now);
        self.compare(name, &found, expected.map(Rejection::reason));
    }

    /// The trusted key with an empty token cache.
    fn keys(&self) -> CurrentKeys {
        let keys = CurrentKeys::new(
            TokenCacheConfig {
                bytes: self.args.limits.token_cache_bytes,
                ..TokenCacheConfig::default()
            },
            None,
            None,
        );
        keys.install(KeySet::nameless(self.trusted.clone()), Instant::now());
        keys
    }

    /// Header lines for each place of a token of the issuer.
    fn locations(&self, token: &str) -> Vec<Vec<String>> {
        match self.required.token_header {
            Some(name) => vec![vec![format!("{name}: {token}")]],
            None => usual_locations(&self.args.rules.tokens, token),
        }
    }

    /// Reasons of rejection for each place and target, twice, because the second uses the token
    /// cache.
    fn reasons(
        &self,
        rules: &AuthPolicy,
        keys: &CurrentKeys,
        locations: &[Vec<String>],
        query: &str,
        now: i64,
    ) -> Vec<Option<&'static str>> {
        let keys = keys.load();
        let keys = keys.as_deref().ok_or(Rejection::AuthKeysUnavailable);
        let targets = self.targets.iter().flat_map(|target| [target, target]);
        let reason = |lines: &[String], target: &str| {
            let target = format!("{target}{query}");
            reason_of(authorize(rules, &target, lines, keys, now))
        };
        targets
            .flat_map(|target| locations.iter().map(move |lines| reason(lines, target)))
            .collect()
    }

    fn compare(&mut self, name: &str, found: &[Option<&'static str>], expected: Option<&str>) {
        self.outcome.compare(name, found, expected);
    }
}

impl Outcome {
    /// Counts a row, and notes it where one of the reasons is not the expected one.
    pub(super) fn compare(
        &mut self,
        name: &str,
        found: &[Option<&'static str>],
        expected: Option<&str>,
    ) {
        let too_large = Some(Rejection::AuthorizationTooLarge.reason());
        let mut others = found
            .iter()
            .filter(|found| **found != expected && **found != too_large);
        match others.next() {
            Some(other) => {
                let expected = expected.unwrap_or("accepted");
                let surprise = format!("{name}: {}, not {expected}", other.unwrap_or("accepted"));
                self.surprises.push(surprise);
            }
            None => self.count(found.iter().all(Option::is_some)),
        }
    }
}
