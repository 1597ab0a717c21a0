//! The `[[issuer]]` tables of the configuration file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use postern_http::host::host_port::redacted;
use postern_process::command_line::serialize::redact_urls;
use postern_process::exit::ExitError;
use postern_token::claims::mapping::UserField;
use postern_token::claims::name::ClaimName;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};

use super::ServeArgs;
use super::issuer_members::{Asymmetric, Dpop, IssuerPattern, KeysWay, Prefix, TableName, Tenant};
use crate::identity::field_name::FieldName;
use crate::issuers::source::kubernetes;
use postern_process::command_line::texts::{Host, List, Name, Text};
use postern_transport::issuer::key_set::Location;

/// The name of the auth server's issuer without a table.
const OWN_NAME: &str = "auth-server";

impl ServeArgs {
    /// Returns all issuers: the one that the flags describe, unless a table has its place, and those
    /// of the tables, the auth server's first.
    ///
    /// # Errors
    /// [`ExitError::Config`] for an unusable `--jwks`.
    pub(crate) fn all_issuers(&self) -> Result<Vec<IssuerTable>, ExitError> {
        let mut all = self.issuers.clone();
        if !all.iter().any(|table| table.auth_server) {
            all.extend(self.issuer_of_flags()?);
        }
        all.sort_by_key(|table| !table.auth_server);
        Ok(all)
    }

    /// Returns the table that says what the flags do; `None` where they name no source of keys.
    fn issuer_of_flags(&self) -> Result<Option<IssuerTable>, ExitError> {
        let (keys, tokens) = (&self.keys, &self.rules.tokens);
        let described = match (&keys.auth_server, &keys.issuer_url, &keys.jwks) {
            (Some(_), ..) => IssuerTable::auth_server(),
            (_, None, None) => return Ok(None),
            (_, url, jwks) => IssuerTable {
                discovery: match url {
                    Some(url) => url.as_str() != kubernetes::ISSUER,
                    None => false,
                },
                jwks: jwks.as_deref().map(location).transpose()?,
                ..IssuerTable::default()
            },
        };
        let issuer = tokens.issuer.as_ref().or(keys.issuer_url.as_ref());
        Ok(Some(IssuerTable {
            issuer: issuer.cloned(),
            audience: if tokens.audience.is_empty() {
                None
            } else {
                Some(List(tokens.audience.clone()))
            },
            ..described
        }))
    }

    /// Returns the settings as the text of a configuration file, without secrets in URLs. The
    /// secret that a file may not hold is a comment.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub(crate) fn to_toml(&self) -> Result<String, ExitError> {
        let settings = self.printable()?;
        match &self.keys.app_secret {
            Some(_) => Ok(format!("{settings}# app-secret is set\n")),
            None => Ok(settings.to_string()),
        }
    }

    /// Returns [`ServeArgs::to_table`] without secrets in URLs.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub(crate) fn printable(&self) -> Result<Table, ExitError> {
        let mut settings = self.to_table().map_err(|error| {
            ExitError::Software(format!("the configuration cannot be printed: {error}"))
        })?;
        for (_, value) in &mut settings {
            redact_urls(value);
        }
        Ok(settings)
    }

    /// Returns the settings as a configuration file has them, without secrets.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub(crate) fn to_table(&self) -> Result<Table, toml::ser::Error> {
        let mut settings = Table::try_from(self)?;
        if self.issuers.is_empty() {
            return Ok(settings);
        }
        // The file has one key for the flag and for the tables.
        settings.remove("audience");
        let tables = self.all_issuers().map_err(toml::ser::Error::custom)?;
        settings.insert("issuer".to_owned(), Value::try_from(tables)?);
        Ok(settings)
    }
}

/// Parses the place of the keys that a flag names.
fn location(text: &str) -> Result<Text<Location>, ExitError> {
    text.parse()
        .map_err(|error| ExitError::Config(format!("--jwks '{}': {error}", redacted(text))))
}

/// An issuer beside the auth server, or in place of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct IssuerTable {
    /// Its name in logs and metrics.
    pub(crate) name: Text<TableName>,
    /// The accepted `iss`.
    pub(crate) issuer: Option<Text<Name>>,
    /// True where its tokens have no `iss`; one that has an `iss` is not of this issuer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_issuer: bool,
    /// The accepted `iss` of several tenants with one key set, with `{…}` for the tenant.
    pub(crate) issuer_pattern: Option<Text<IssuerPattern>>,
    /// The accepted tenants.
    pub(crate) tenants: Option<List<Tenant>>,
    /// True for the issuer whose keys come from `--auth-server`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) auth_server: bool,
    /// True where the document at the issuer's own address names the JWK Set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) discovery: bool,
    /// Further hosts that this document may name.
    pub(crate) jwks_hosts: Option<List<Host>>,
    /// The address of its JWK Set, or a file with it or with its public keys in PEM.
    pub(crate) jwks: Option<Text<Location>>,
    /// A token is for one of them.
    pub(crate) audience: Option<List<Name>>,
    /// The claims that name it in place of `aud`: the first that is there and not empty counts.
    pub(crate) audience_claim: Option<List<ClaimName>>,
    /// The algorithms of the keys that count; all without it.
    pub(crate) algorithms: Option<List<Asymmetric>>,
    /// Fields of the user and their claims; of several the first that is there counts.
    pub(crate) claim: Option<BTreeMap<Text<UserField>, List<ClaimName>>>,
    /// `required` if its tokens count only with a proof of the key that they are bound to (RFC 9449).
    pub(crate) dpop: Option<Text<Dpop>>,
    /// The header in which a proxy in front sends its tokens; they are accepted nowhere else.
    pub(crate) token_header: Option<Text<FieldName>>,
    /// Put before the id and account of its users; required where there are several issuers.
    pub(crate) user_prefix: Option<Text<Prefix>>,
    /// Headers with claims of its tokens alone, as `NAME=CLAIM`.
    pub(crate) claim_header: Option<List<String>>,
    /// Certificates to trust in place of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The proxy to its keys in place of the environment's, or `none`.
    pub(crate) keys_proxy: Option<Text<KeysWay>>,
    /// A file with the pod's own token, for `kubernetes:///`.
    pub(crate) token_file: Option<PathBuf>,
}

impl IssuerTable {
    /// Returns the auth server's table where the file has none.
    fn auth_server() -> Self {
        Self {
            name: OWN_NAME.parse().unwrap_or_default(),
            user_prefix: Some(Text::default()),
            auth_server: true,
            ..Self::default()
        }
    }

    /// Returns it without what a reload may change: the keys stay the same.
    #[must_use]
    pub(crate) fn about_keys(&self) -> Self {
        Self {
            issuer: if self.auth_server {
                None
            } else {
                self.issuer.clone()
            },
            audience: None,
            audience_claim: None,
            claim: None,
            dpop: None,
            token_header: None,
            user_prefix: None,
            claim_header: None,
            ..self.clone()
        }
    }

    /// Returns true for the issuer of the cluster whose pod this is.
    pub(crate) fn is_kubernetes(&self) -> bool {
        match &self.issuer {
            Some(issuer) => !self.auth_server && issuer.as_str() == kubernetes::ISSUER,
            None => false,
        }
    }
}

/// Reads the tables; a text is the flag `--issuer`.
pub(super) fn tables_or_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<IssuerTable>, D::Error> {
    struct Tables;
    impl<'de> Visitor<'de> for Tables {
        type Value = Vec<IssuerTable>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string, or tables: [[issuer]]")
        }

        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, tables: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(tables))
        }
    }
    deserializer.deserialize_any(Tables)
}
