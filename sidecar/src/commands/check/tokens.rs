//! The table of attack tokens, under the settings of this configuration.

use std::time::Instant;

use contract::interceptor::USER_DETAILS_PATH;
use contract::keys::algorithms::AsymmetricAlgorithm;
use contract::keys::signing_type::SigningType;
use contract::keys::{KeySet, VerificationKey};
use contract::rejection::Rejection;
use runtime::exit::Failure;
use serde_json::{Map, Value, json};
use token_corpus::keys::{Algorithm, SigningKey};
use token_corpus::token_forge::Forge;
use token_corpus::token_rows::{
    Attack, KeySetShape, Policy, Setting, Subject, TokenRow, TokenTable,
};

use super::judge::Request;
use super::{Outcome, paths};
use crate::cli::ServeArgs;
use crate::cli::policy_args::RulesArgs;
use crate::config::Config;
use crate::downstream::head_limits::MAX_HEAD_BYTES;
use crate::keys::current::{CurrentKeys, KeyState};
use crate::keys::source::SourceSettings;
use crate::keys::source::file::Format;
use crate::keys::token_cache::TokenCache;

/// Puts every row that applies before the rules.
///
/// # Errors
/// [`Failure::Software`] where the table or a key of the forge is unusable.
pub(super) fn attack(args: &ServeArgs, config: &Config, now: i64) -> Result<Outcome, Failure> {
    let table = TokenTable::load().map_err(|error| broken(&error))?;
    let mut outcome = Outcome::default();
    let mut keys: Option<(Forge, SigningKey)> = None;
    for algorithm in algorithms(args, &config.key_source)? {
        let (forge, another) = match &keys {
            Some((forge, another)) => (forge.meant_for(algorithm), another.meant_for(algorithm)),
            None => (Forge::new(algorithm), SigningKey::generate(algorithm)),
        };
        let (forge, another) = &*keys.insert((forge, another));
        for &shape in shapes(&config.key_source, algorithm) {
            let scene = Scene::new(args, config, forge, another, shape, now)?;
            for row in &table.token {
                scene.play(row, &mut outcome);
            }
        }
    }
    Ok(outcome)
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::Software(format!("the attacks cannot be made: {error}"))
}

/// Those that tokens may be signed with.
fn algorithms(args: &ServeArgs, source: &SourceSettings) -> Result<Vec<Algorithm>, Failure> {
    if let SourceSettings::AuthServer(settings) = source {
        return Ok(vec![match settings.signing_type {
            SigningType::Rsa => Algorithm::RS256,
            SigningType::Hmac => Algorithm::HS256,
            SigningType::Ecdsa => Algorithm::ES256,
        }]);
    }
    let allowed = args.issuer_tokens.each_algorithm();
    allowed
        .iter()
        .map(|algorithm| of_the_forge(&algorithm.to_string()))
        .collect()
}

/// One that the forge does not know would otherwise pass without a single attack.
fn of_the_forge(name: &str) -> Result<Algorithm, Failure> {
    Algorithm::ASYMMETRIC
        .into_iter()
        .find(|algorithm| algorithm.name() == name)
        .ok_or_else(|| broken(&format!("no key signs with {name}")))
}

/// How keys may be known that come from there.
const fn shapes(source: &SourceSettings, algorithm: Algorithm) -> &'static [KeySetShape] {
    match (source, algorithm) {
        // A shared secret is in no key set.
        (SourceSettings::AuthServer(_), Algorithm::HS256) => &[KeySetShape::Nameless],
        (SourceSettings::AuthServer(_), _) => &[KeySetShape::Nameless, KeySetShape::Named],
        (SourceSettings::File(file), _) if matches!(file.format, Format::Pem) => {
            &[KeySetShape::Nameless]
        }
        _ => &[KeySetShape::Named],
    }
}

/// One key set in front of the rules.
struct Scene<'s> {
    rules: &'s RulesArgs,
    config: &'s Config,
    forge: &'s Forge,
    shape: KeySetShape,
    setting: Setting,
    keys: CurrentKeys,
    targets: Vec<String>,
}

impl<'s> Scene<'s> {
    fn new(
        args: &'s ServeArgs,
        config: &'s Config,
        forge: &'s Forge,
        another: &SigningKey,
        shape: KeySetShape,
        now: i64,
    ) -> Result<Self, Failure> {
        let trusted = verification_key(forge.trusted())?;
        let kid = trusted.id().as_str().to_owned();
        let key_set = match shape {
            KeySetShape::Nameless => KeySet::nameless(trusted),
            KeySetShape::Named => KeySet::named(vec![verification_key(another)?, trusted]),
        };
        let keys = CurrentKeys::new(TokenCache {
            bytes: args.limits.token_cache_bytes,
            ..TokenCache::default()
        });
        keys.install(key_set, Instant::now());
        Ok(Self {
            setting: setting(&args.rules, config, &kid, now),
            targets: targets(&args.rules)?,
            rules: &args.rules,
            config,
            forge,
            shape,
            keys,
        })
    }

    /// Wherever a token may stand and is asked for, twice: the second time what is remembered has a say.
    fn play(&self, row: &TokenRow, outcome: &mut Outcome) {
        if !self.applies(row) {
            return;
        }
        let attack = row.attack(self.forge, &self.setting);
        let keys = self.keys.load();
        let query = row
            .query
            .as_ref()
            .map_or_else(String::new, |query| format!("?{query}"));
        for place in self.places(row, &attack) {
            for target in self.targets.iter().flat_map(|target| [target, target]) {
                let expected = self.expected(row, &attack, &place);
                let verdict =
                    self.verdict(&place.lines, &format!("{target}{query}"), keys.as_deref());
                if let Some(difference) = difference(expected, verdict) {
                    outcome
                        .surprises
                        .push(format!("{}: {difference}", row.name));
                    return;
                }
            }
        }
        let expected = self.expected(row, &attack, &Place::of_row(&attack));
        outcome.count(expected.is_some());
    }

    fn applies(&self, row: &TokenRow) -> bool {
        let holds = |policy| match policy {
            Policy::Default => true,
            Policy::Issuer => self.rules.tokens.issuer.is_some(),
            Policy::Audience => !self.rules.tokens.audience.is_empty(),
            Policy::NoExpiry => self.rules.tokens.allow_no_exp,
        };
        let mapped = self.config.rules.auth_policy.policy.mapping.is_some();
        row.is_tried_with(self.forge.trusted().algorithm())
            && (self.shape == KeySetShape::Named || row.keys == KeySetShape::Nameless)
            && holds(row.policy)
            && !row.unless.is_some_and(holds)
            && !(mapped && row.claims == Subject::Contract)
            && !(self.rules.tokens.token_cookie.is_some() && row.sends("Cookie"))
    }

    /// The credentials of the row, and where it is about the token alone, with the token in each other place
    /// that is configured.
    fn places(&self, row: &TokenRow, attack: &Attack) -> Vec<Place> {
        let own = Place::of_row(attack);
        let token = attack.lines.first().filter(|_| row.is_about_the_token());
        let token = token.and_then(|line| line.strip_prefix(b"Authorization: Bearer "));
        let Some(token) = token else {
            return vec![own];
        };
        let cookie = self.rules.tokens.token_cookie.iter();
        let cookie = cookie.map(|name| Place::of_token(&format!("Cookie: {name}="), token));
        let protocol = self.rules.tokens.websocket_token;
        let protocol = protocol.then(|| Place::of_websocket(token));
        let own = std::iter::once(own);
        own.chain(cookie).chain(protocol).collect()
    }

    /// The reason of the refusal; `None` for a token that is accepted. Issuer and audience are asked for last.
    fn expected<'r>(&self, row: &'r TokenRow, attack: &Attack, place: &Place) -> Option<&'r str> {
        if place.measured > self.rules.tokens.max_authorization_bytes
            || place.bytes() > MAX_HEAD_BYTES
        {
            return Some(Rejection::AuthorizationTooLarge.reason());
        }
        match row.expected(self.shape).split_once(' ') {
            // What is another audience for the row may be one of several here.
            Some((_, reason)) if reason != Rejection::TokenAudience.reason() => {
                return Some(reason);
            }
            _ => {}
        }
        let claims = attack.claims.as_ref().unwrap_or(&Value::Null);
        if self
            .rules
            .tokens
            .issuer
            .as_ref()
            .is_some_and(|issuer| claims["iss"] != **issuer)
        {
            return Some(Rejection::TokenIssuer.reason());
        }
        let meant = |audience: &String| match &claims["aud"] {
            Value::Array(several) => several.iter().any(|one| one == audience),
            one => one == audience,
        };
        let audiences = &self.rules.tokens.audience;
        if !audiences.is_empty() && !audiences.iter().any(meant) {
            return Some(Rejection::TokenAudience.reason());
        }
        None
    }

    fn verdict(
        &self,
        lines: &[Vec<u8>],
        target: &str,
        keys: Option<&KeyState>,
    ) -> Result<(), Rejection> {
        let keys = keys.ok_or(Rejection::AuthKeysUnavailable);
        let request = Request { target, lines };
        let judged = request.judged(&self.config.rules.auth_policy, keys, self.setting.now);
        match judged {
            // A good token's user; how long a header may be, and whether the service can be asked to open a
            // WebSocket, are no questions of trust.
            Ok(_) | Err(Rejection::IdentityTooLarge | Rejection::UpgradeNotAllowed) => Ok(()),
            Err(rejection) => Err(rejection),
        }
    }
}

/// Where the credentials stand.
struct Place {
    lines: Vec<Vec<u8>>,
    /// What the limit of a token is compared with; 0 where it is not the first to be looked at.
    measured: usize,
}

impl Place {
    fn of_row(attack: &Attack) -> Self {
        const NAME: &[u8] = b"authorization:";
        let value = |line: &Vec<u8>| {
            let (name, value) = line.split_at_checked(NAME.len())?;
            name.eq_ignore_ascii_case(NAME)
                .then_some(value.trim_ascii().len())
        };
        let measured = match &attack.lines[..] {
            [line] => value(line),
            _ => None,
        };
        Self {
            lines: attack.lines.clone(),
            measured: measured.unwrap_or_default(),
        }
    }

    fn of_token(before: &str, token: &[u8]) -> Self {
        Self {
            lines: vec![[before.as_bytes(), token].concat()],
            measured: token.len(),
        }
    }

    fn of_websocket(token: &[u8]) -> Self {
        let mut place = Self::of_token("Sec-WebSocket-Protocol: bearer, ", token);
        let handshake = [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ];
        let handshake = handshake.map(|line| line.as_bytes().to_vec());
        place.lines.extend(handshake);
        place
    }

    fn bytes(&self) -> usize {
        self.lines.iter().map(Vec::len).sum()
    }
}

fn difference(expected: Option<&str>, verdict: Result<(), Rejection>) -> Option<String> {
    // The limit of a whole head may come before that of one field.
    let reason = match verdict {
        Err(Rejection::RequestHeaderTooLarge) => Some(Rejection::AuthorizationTooLarge.reason()),
        Err(rejection) => Some(rejection.reason()),
        Ok(()) => None,
    };
    let said = |reason: Option<&str>| reason.unwrap_or("accepted").to_owned();
    (reason != expected).then(|| format!("{}, not {}", said(reason), said(expected)))
}

fn verification_key(key: &SigningKey) -> Result<VerificationKey, Failure> {
    let served = key.served();
    if key.algorithm() == Algorithm::HS256 {
        return VerificationKey::parse(SigningType::Hmac, &served).map_err(|error| broken(&error));
    }
    let named: AsymmetricAlgorithm = key
        .algorithm()
        .name()
        .parse()
        .map_err(|error| broken(&error))?;
    let keys = KeySet::from_pem(&served, &[named.jws()]).map_err(|error| broken(&error))?;
    let key = keys.keys().first().cloned();
    key.ok_or_else(|| broken(&"a PEM without a key"))
}

fn setting(rules: &RulesArgs, config: &Config, kid: &str, now: i64) -> Setting {
    let defaults = Setting::of_defaults(kid, now);
    let mut claims = Map::new();
    // Not the one that rows name, where there are several: good tokens are for either.
    if let Some(audience) = rules.tokens.audience.last() {
        claims.insert("aud".to_owned(), json!(audience));
    }
    if let Some(mapping) = &config.rules.auth_policy.policy.mapping {
        mapping.name_user(&mut claims, "10001");
    }
    Setting {
        issuer: rules.tokens.issuer.clone().unwrap_or(defaults.issuer),
        audience: rules
            .tokens
            .audience
            .first()
            .cloned()
            .unwrap_or(defaults.audience),
        leeway: rules.tokens.leeway.get().into(),
        cap: i64::try_from(rules.tokens.max_authorization_bytes).unwrap_or(i64::MAX),
        claims: Value::Object(claims),
        ..Setting::of_defaults(kid, now)
    }
}

/// A path of the service that needs a token, if there is one, and the user-details path, which always does.
fn targets(rules: &RulesArgs) -> Result<Vec<String>, Failure> {
    let open = paths::OpenPaths::new(rules)?;
    let protected = [paths::PROBE].into_iter().filter(|path| !open.holds(path));
    let paths = [USER_DETAILS_PATH].into_iter().chain(protected);
    Ok(paths.map(|path| open.full(path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_that_cannot_be_attacked_is_said_to_be() {
        for algorithm in Algorithm::ASYMMETRIC {
            assert_eq!(of_the_forge(algorithm.name()), Ok(algorithm));
        }
        for name in ["ES512", "HS256", "", "none"] {
            assert!(of_the_forge(name).is_err(), "{name}");
        }
    }
}
