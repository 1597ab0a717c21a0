//! The issuers of the `[[logout]]` tables.

use std::collections::BTreeSet;
use std::fmt::Display;

use postern_process::command_line::seconds::Seconds;
use postern_process::command_line::texts::{List, Text};
use postern_process::exit::ExitError;
use postern_token::keys::algorithms::ASYMMETRIC;
use postern_transport::http_client::proxy::KeysProxy;
use postern_transport::issuer::document::IssuerUrl;
use postern_transport::issuer::key_set::{KeySetSettings, Location};
use postern_transport::tls::peer::PeerFiles;
use postern_transport::tls::peer_settings::PeerSettings;

use crate::cli::logout_table::{LogoutScope, LogoutTable};
use crate::revocations::foreign::{ForeignIssuer, ForeignIssuerSettings};

/// The default of `token-lifetime`.
const DAY: Seconds = Seconds::new(86_400);
/// The range of `token-lifetime`, in seconds.
const LIFETIMES: std::ops::RangeInclusive<u32> = 60..=crate::revocations::MAX_SESSION_LIFETIME;

/// Reads the tables.
///
/// # Errors
/// [`ExitError::Config`] that names the issuer of a table.
pub(super) fn foreign_issuers(
    tables: &[LogoutTable],
    own_issuer: &str,
) -> Result<Vec<ForeignIssuer>, ExitError> {
    let mut names = BTreeSet::new();
    for table in tables {
        if !names.insert(table.issuer.as_str()) {
            return Err(rejected(table, "another table has the same issuer"));
        }
        // Tokens of this server end by `/oauth/revoke`, and not by a statement of another issuer.
        if table.issuer.as_str() == own_issuer {
            let why = "is the --issuer of this server, whose own logout is /oauth/revoke";
            return Err(rejected(table, why));
        }
    }
    tables.iter().map(foreign_issuer).collect()
}

fn foreign_issuer(table: &LogoutTable) -> Result<ForeignIssuer, ExitError> {
    let lifetime = table.token_lifetime.as_deref().copied().unwrap_or(DAY);
    if !LIFETIMES.contains(&lifetime.get()) {
        return Err(rejected(table, "`token-lifetime`: expected 1m to 30d"));
    }
    let settings = ForeignIssuerSettings {
        issuer: table.issuer.as_str().to_owned(),
        clients: table.client.texts(),
        token_lifetime: lifetime.get().into(),
        ends_users: table.ends == LogoutScope::User,
    };
    ForeignIssuer::new(settings, key_set(table)?).map_err(|why| rejected(table, why))
}

fn key_set(table: &LogoutTable) -> Result<KeySetSettings, ExitError> {
    let hosts = table.jwks_hosts.as_ref();
    let location = match &table.jwks {
        Some(_) if hosts.is_some() => {
            let why = "`jwks-hosts` has an effect only without `jwks`";
            return Err(rejected(table, why));
        }
        Some(jwks) => Location::clone(jwks),
        None => {
            // Without an address the discovery document of the issuer names the key set.
            let url = IssuerUrl::new(table.issuer.as_str()).map_err(|why| rejected(table, why))?;
            Location::Issuer(url, hosts.map(List::texts).unwrap_or_default())
        }
    };
    if table.ca.is_some() && !location.is_https() {
        return Err(rejected(table, "`ca` has an effect only with https"));
    }
    Ok(KeySetSettings {
        tls: PeerFiles {
            settings: PeerSettings {
                ca: "`ca`",
                ..PeerSettings::default()
            },
            ca: table.ca.clone(),
            identity: None,
        },
        proxy: if location.is_https() {
            KeysProxy::from_environment(|name| std::env::var(name).ok())
        } else {
            None
        },
        bearer_file: None,
        location,
        setting: "jwks",
        algorithms: ASYMMETRIC.to_vec(),
        max_key_age: None,
    })
}

fn rejected(table: &LogoutTable, why: impl Display) -> ExitError {
    ExitError::Config(format!("[[logout]] {}: {why}", Text::as_str(&table.issuer)))
}
