//! The issuers: the one of the flags, and those of the `[[issuer]]` tables in the file.

mod table;
mod user_prefix;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use runtime::process::exit::ExitError;

use self::table::TableSettings;
use self::user_prefix::UserPrefix;
use super::key_source;
use super::policy::{mapping, policy, user_header};
use crate::auth::issuers::{Issuer, Issuers, UserNames};
use crate::cli::ServeArgs;
use crate::headers::identity::{ClaimHeader, ClaimHeaderError, UserHeader};
use crate::keys::cache::KeyCacheSettings;
use crate::keys::source::SourceSettings;

/// Max number of issuers: a cached token is searched with the keys of each.
const MAX_ISSUERS: usize = 16;

/// The source of the keys of one issuer.
#[derive(Debug, Clone)]
pub(crate) struct IssuerConfig {
    /// `None` for the only issuer.
    pub(crate) name: Option<String>,
    pub(crate) source: SourceSettings,
    pub(crate) key_cache: Option<KeyCacheSettings>,
}

/// All issuers of one configuration.
#[derive(Debug)]
pub(super) struct IssuerSettings {
    pub(super) first: IssuerConfig,
    pub(super) others: Vec<IssuerConfig>,
    /// The rules for the tokens of each; `None` without tables.
    pub(super) policies: Option<Issuers>,
    pub(super) known: KnownIssuers,
}

/// The issuers, as the rules for requests know them.
#[derive(Debug, Default)]
pub(crate) struct KnownIssuers {
    /// The accepted `iss` of each, by its name.
    pub(super) named: BTreeMap<String, Vec<String>>,
    /// The accepted `iss` of those that give tokens to clients of the service.
    pub(super) of_clients: Vec<String>,
    /// With the claim headers of the tables, if there are any.
    pub(super) user_header: Option<UserHeader>,
}

/// Reads the issuers of flags and tables.
///
/// # Errors
/// [`ExitError::Config`] that names the flag or the table.
pub(super) fn settings(args: &ServeArgs) -> Result<IssuerSettings, ExitError> {
    let source = key_source::settings(args)?;
    if args.issuers.is_empty() {
        let source = source.ok_or_else(no_source)?;
        let first = IssuerConfig {
            name: None,
            key_cache: key_source::key_cache(args, &source)?,
            source,
        };
        return Ok(IssuerSettings {
            first,
            others: Vec::new(),
            policies: None,
            known: KnownIssuers {
                of_clients: args.issuer().map(str::to_owned).into_iter().collect(),
                ..KnownIssuers::default()
            },
        });
    }
    of_several(args, source)
}

fn no_source() -> ExitError {
    let line = "no source of keys: one of --auth-server, --jwks-url, --jwks-file and \
                --public-key-file is required, or an [[issuer]] in the file";
    ExitError::Config(line.to_owned())
}

fn of_several(
    args: &ServeArgs,
    source: Option<SourceSettings>,
) -> Result<IssuerSettings, ExitError> {
    reject_flags_of_one_issuer(args)?;
    let (mut sources, mut policies) = (Vec::new(), Vec::new());
    let (mut of_clients, mut prefixes) = (Vec::new(), Vec::new());
    let user_header = with_claim_headers(args, source.is_some())?;
    if let Some(source) = source {
        let name = args.issuers.own_name().to_owned();
        let policy = policy(&args.rules.tokens, mapping(args)?)?;
        if policy.issuer.is_none() {
            return Err(ExitError::Config(format!(
                "[[issuer]] {name}: the iss of the auth server's tokens is required beside other \
                 issuers: `issuer` in a table with auth-server = true, or POSTERN_ISSUER"
            )));
        }
        of_clients.extend(policy.issuer.clone());
        prefixes.push(UserPrefix::of_auth_server(&args.issuers));
        sources.push(IssuerConfig {
            name: Some(name.clone()),
            key_cache: key_source::key_cache(args, &source)?,
            source,
        });
        policies.push(Issuer {
            name,
            policy,
            keys: 0,
            token_header: None,
            users: UserNames::default(),
        });
    }
    for table in &args.issuers.tables {
        let table = TableSettings::new(table, args)?;
        let token_header = table.token_header(&user_header)?;
        if token_header.is_none() && !table.is_kubernetes() {
            of_clients.extend_from_slice(table.accepted());
        }
        for policy in table.policies()? {
            policies.push(Issuer {
                name: table.name().to_owned(),
                policy,
                keys: sources.len(),
                token_header: token_header.clone(),
                users: UserNames::default(),
            });
        }
        prefixes.push(table.user_prefix());
        sources.push(table.config()?);
    }
    reject_repeated(&policies)?;
    if sources.len() > MAX_ISSUERS {
        let line = format!(
            "[[issuer]]: there are {}; {MAX_ISSUERS} are possible",
            sources.len()
        );
        return Err(ExitError::Config(line));
    }
    let names = user_prefix::names(&prefixes)?;
    let mut named: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for issuer in &mut policies {
        issuer.users = names.get(issuer.keys).cloned().unwrap_or_default();
        let of_name = named.entry(issuer.name.clone()).or_default();
        of_name.extend(issuer.policy.issuer.clone());
    }
    let mut sources = sources.into_iter();
    Ok(IssuerSettings {
        first: sources.next().ok_or_else(no_source)?,
        others: sources.collect(),
        policies: Some(Issuers::new(policies)),
        known: KnownIssuers {
            named,
            of_clients,
            user_header: Some(user_header),
        },
    })
}

/// Returns the user header with the claim headers of each table, in the order of the keys.
fn with_claim_headers(args: &ServeArgs, has_auth_server: bool) -> Result<UserHeader, ExitError> {
    let mut header = user_header(&args.rules.identity)?;
    let own = has_auth_server.then(|| args.issuers.own());
    let tables = own.into_iter().chain(args.issuers.tables.iter().map(Some));
    for (keys, table) in tables.enumerate() {
        let Some(table) = table else { continue };
        for entry in &table.claim_header {
            let why = |error: &dyn Display| {
                rejected(&table.name, format!("claim-header '{entry}': {error}"))
            };
            let claim: ClaimHeader = entry
                .parse()
                .map_err(|error: ClaimHeaderError| why(&error))?;
            header = header
                .with_claim(claim.only_of(keys))
                .map_err(|error| why(&error))?;
        }
    }
    Ok(header)
}

/// Rejects flags that describe the only issuer, and those of an auth server that there is not.
fn reject_flags_of_one_issuer(args: &ServeArgs) -> Result<(), ExitError> {
    let (keys, tokens) = (&args.keys, &args.rules.tokens);
    let has_auth_server = keys.auth_server.is_some();
    let of_one = [
        ("issuer-url", keys.issuer_url.is_some()),
        ("keys-proxy", keys.keys_proxy.is_some()),
        ("jwks-url", keys.jwks_url.is_some()),
        ("jwks-file", keys.jwks_file.is_some()),
        ("public-key-file", keys.public_key_file.is_some()),
        ("algorithms", !args.issuer_tokens.algorithms.is_empty()),
        ("claim", !args.issuer_tokens.claim.is_empty()),
        ("audience", !has_auth_server && !tokens.audience.is_empty()),
        ("issuer", !has_auth_server && tokens.issuer.is_some()),
    ];
    match of_one.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(ExitError::Config(format!(
            "--{flag}: has no meaning beside [[issuer]] tables, each of which has its own"
        ))),
    }
}

fn reject_repeated(issuers: &[Issuer]) -> Result<(), ExitError> {
    let (mut names, mut accepted) = (BTreeMap::new(), BTreeSet::new());
    for issuer in issuers {
        let name = &issuer.name;
        // Tenants share the name with the keys.
        if *names.entry(name).or_insert(issuer.keys) != issuer.keys {
            return Err(rejected(name, "another issuer has this name"));
        }
        if !accepted.insert(&issuer.policy.issuer) {
            return Err(rejected(name, "another one accepts the same `issuer`"));
        }
    }
    Ok(())
}

fn rejected(name: &str, why: impl Display) -> ExitError {
    ExitError::Config(format!("[[issuer]] {name}: {why}"))
}
