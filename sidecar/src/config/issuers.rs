//! The issuers: the one that flags describe, and those of the `[[issuer]]` tables in the file.

mod accepted;
mod description;
mod user_prefix;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use postern_process::exit::ExitError;

use self::description::Description;
use super::flag_value::flag_error;
use super::key_source;
use super::user_header::user_header;
use crate::cli::ServeArgs;
use crate::cli::key_args::RevocationMode;
use crate::decision::issuers::{Issuer, Issuers, UserNames};
use crate::identity::user_header::UserHeader;
use crate::issuers::IssuerSettings;
use crate::issuers::source::SourceSettings;
use postern_process::command_line::texts::List;
use postern_token::keys::KeySetIndex;

/// Max number of issuers: a cached token is searched with the keys of each.
const MAX_ISSUERS: usize = 16;

/// The name of `--revocations-from` in logs and metrics, and in the name of its key cache.
const LIST_SOURCE: &str = "revocations-from";

/// All issuers of one configuration.
#[derive(Debug)]
pub(super) struct AllIssuers {
    /// The sources of keys, at least one.
    pub(super) sources: Vec<IssuerSettings>,
    /// The auth server whose list alone is in use.
    pub(super) list_source: Option<IssuerSettings>,
    /// The rules for the tokens of each issuer.
    pub(super) issuers: Issuers,
    /// The accepted `iss` of the issuers that give tokens to clients of the service.
    pub(super) client_issuers: Vec<String>,
    /// The user header, with the claim headers of each issuer.
    pub(super) user_header: UserHeader,
}

/// Reads the issuers of flags and tables.
///
/// # Errors
/// [`ExitError::Config`] that names the flag or the table.
pub(super) fn settings(args: &ServeArgs) -> Result<AllIssuers, ExitError> {
    let described = describe_all(args)?;
    let user_header = with_claim_headers(args, &described)?;
    let mut sources = Vec::new();
    let mut issuers = Vec::new();
    let mut client_issuers = Vec::new();
    for (index, description) in described.iter().enumerate() {
        let token_header = description.token_header(&user_header)?;
        // Tokens of the other issuers are added by a proxy or the cluster: no client fetches them.
        if token_header.is_none() && !description.table().is_kubernetes() {
            client_issuers.extend_from_slice(description.accepted_issuers());
        }
        for policy in description.policies()? {
            issuers.push(Issuer {
                policy,
                key_set: KeySetIndex(index),
                token_header: token_header.clone(),
                users: UserNames::default(),
            });
        }
        sources.push(description.settings()?);
    }
    reject_repeated(&issuers)?;
    reject_shared_keys(&described)?;
    let list_source = list_source(args)?;
    if let Some(file) = &args.keys.key_cache
        && !sources
            .iter()
            .chain(&list_source)
            .any(|source| source.key_cache.is_some())
    {
        let why = "has an effect only where keys are fetched from a server";
        return Err(flag_error("key-cache", file.display(), why));
    }
    let prefixes: Vec<_> = described.iter().map(Description::user_prefix).collect();
    let names = user_prefix::names(&prefixes)?;
    for issuer in &mut issuers {
        issuer.users = names.get(issuer.key_set.0).cloned().unwrap_or_default();
    }
    Ok(AllIssuers {
        sources,
        list_source,
        issuers: Issuers::new(issuers),
        client_issuers,
        user_header,
    })
}

/// Returns the settings for `--revocations-from`.
fn list_source(args: &ServeArgs) -> Result<Option<IssuerSettings>, ExitError> {
    let keys = &args.keys;
    let has_source = keys.auth_server.is_some() || keys.revocations_from.is_some();
    if keys.revocations.is_some() && !has_source {
        return Err(ExitError::Config(
            "--revocations: has an effect only with --auth-server or --revocations-from".to_owned(),
        ));
    }
    let Some(endpoint) = key_source::list_server(args)? else {
        return Ok(None);
    };
    if keys.revocations == Some(RevocationMode::Off) {
        let why = "leaves --revocations-from without effect";
        return Err(flag_error("revocations", "off", why));
    }
    let source = SourceSettings::AuthServer(endpoint);
    let key_cache = match &keys.key_cache {
        Some(file) => source
            .cached_in(cache_of(file, LIST_SOURCE), None)
            .map_err(|why| flag_error("revocations-from", &source, why))?,
        None => None,
    };
    Ok(Some(IssuerSettings {
        name: Some(LIST_SOURCE.to_owned()),
        source,
        key_cache,
        max_revocation_age: match keys.revocations {
            Some(RevocationMode::Required) => Some(keys.max_revocation_age.duration()),
            _ => None,
        },
    }))
}

/// Returns the file of the keys of this name, beside `--key-cache`.
fn cache_of(given: &Path, name: &str) -> PathBuf {
    let mut file = given.as_os_str().to_owned();
    file.push(".");
    file.push(name);
    file.into()
}

/// Describes all issuers.
fn describe_all(args: &ServeArgs) -> Result<Vec<Description<'_>>, ExitError> {
    if !args.issuers.is_empty() {
        reject_flags_of_one_issuer(args)?;
    }
    let tables = args.all_issuers()?;
    match tables.len() {
        0 => Err(ExitError::Config(
            "no source of keys: one of --auth-server, --issuer-url and --jwks is required, or an \
             [[issuer]] in the file"
                .to_owned(),
        )),
        1..=MAX_ISSUERS => tables
            .into_iter()
            .map(|table| Description::new(table, args))
            .collect(),
        many => Err(ExitError::Config(format!(
            "[[issuer]]: there are {many}; {MAX_ISSUERS} are possible"
        ))),
    }
}

/// Returns the user header with the claim headers of each issuer.
fn with_claim_headers(
    args: &ServeArgs,
    described: &[Description<'_>],
) -> Result<UserHeader, ExitError> {
    let mut header = user_header(&args.rules.identity)?;
    for (index, description) in described.iter().enumerate() {
        let table = description.table();
        for entry in table.claim_header.iter().flat_map(List::texts) {
            header = header
                .with_claim(&entry, Some(KeySetIndex(index)))
                .map_err(|error| {
                    table_error(
                        table.name.as_str(),
                        format!("claim-header '{entry}': {error}"),
                    )
                })?;
        }
    }
    Ok(header)
}

/// Rejects flags about the only issuer, about members of a table, or about an auth server that is missing.
fn reject_flags_of_one_issuer(args: &ServeArgs) -> Result<(), ExitError> {
    let (keys, tokens) = (&args.keys, &args.rules.tokens);
    let is_in_table = args.issuers.iter().any(|table| table.auth_server);
    // An auth server without a table is described by the flags, also beside tables.
    let is_described = keys.auth_server.is_some() && !is_in_table;
    for (flag, is_given) in [
        ("issuer-url", keys.issuer_url.is_some()),
        ("jwks", keys.jwks.is_some()),
        ("claim", !tokens.claim.is_empty()),
        ("audience", !is_described && !tokens.audience.is_empty()),
        ("issuer", !is_described && tokens.issuer.is_some()),
    ] {
        if is_given {
            return Err(ExitError::Config(format!(
                "--{flag}: has no meaning beside [[issuer]] tables, each of which has its own"
            )));
        }
    }
    if keys.auth_server.is_some() || keys.revocations_from.is_some() {
        return Ok(());
    }
    match key_source::tls_files(args).first_setting() {
        None => Ok(()),
        Some(flag) => Err(ExitError::Config(format!(
            "{flag}: has an effect only with --auth-server; a table has `ca`"
        ))),
    }
}

fn reject_repeated(issuers: &[Issuer]) -> Result<(), ExitError> {
    let (mut names, mut accepted) = (BTreeMap::new(), BTreeSet::new());
    for issuer in issuers {
        let name = issuer.policy.name.as_deref().unwrap_or_default();
        // Tenants share the name with the keys.
        if *names.entry(name).or_insert(issuer.key_set) != issuer.key_set {
            return Err(table_error(name, "another issuer has this name"));
        }
        if !accepted.insert(&issuer.policy.issuer) {
            return Err(table_error(
                name,
                "another one accepts the same `issuer`, or also has `no-issuer`",
            ));
        }
    }
    Ok(())
}

/// Rejects keys that two tables share if tokens of one have no `iss`, whose issuer the keys alone name.
fn reject_shared_keys(described: &[Description<'_>]) -> Result<(), ExitError> {
    let tables: Vec<_> = described.iter().map(Description::table).collect();
    let Some(nameless) = tables.iter().find(|table| table.no_issuer) else {
        return Ok(());
    };
    let same = tables.iter().filter(|table| table.jwks == nameless.jwks);
    if same.count() == 1 {
        return Ok(());
    }
    let why = "`no-issuer` needs a `jwks` of its own, and another table has the same";
    Err(table_error(nameless.name.as_str(), why))
}

/// Names the table; the issuer that flags describe has no name.
fn table_error(name: &str, why: impl Display) -> ExitError {
    match name {
        "" => ExitError::Config(why.to_string()),
        _ => ExitError::Config(format!("[[issuer]] {name}: {why}")),
    }
}
