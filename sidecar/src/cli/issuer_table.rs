//! The `[[issuer]]` tables of the configuration file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use postern_process::command_line::serialize::redact_urls;
use postern_process::exit::ExitError;
use postern_token::keys::Algorithm;
use postern_token::keys::algorithms::asymmetric;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};

use super::ServeArgs;
use crate::issuers::source::kubernetes;

/// The name of the auth server's issuer without a table.
const OWN_NAME: &str = "auth-server";

impl ServeArgs {
    /// Returns all issuers: the one that the flags describe, unless a table has its place, and those
    /// of the tables, the auth server's first.
    pub(crate) fn all_issuers(&self) -> Vec<IssuerTable> {
        let is_in_table = self.issuers.iter().any(|table| table.auth_server);
        let of_flags = Some(self.issuer_of_flags()).filter(|_| !is_in_table);
        let of_flags = of_flags.flatten().into_iter();
        let mut all: Vec<_> = of_flags.chain(self.issuers.iter().cloned()).collect();
        all.sort_by_key(|table| !table.auth_server);
        all
    }

    /// Returns the table that says what the flags do; `None` where they name no source of keys.
    fn issuer_of_flags(&self) -> Option<IssuerTable> {
        let (keys, tokens) = (&self.keys, &self.rules.tokens);
        let described = match (&keys.auth_server, &keys.issuer_url, &keys.jwks) {
            (Some(_), ..) => IssuerTable {
                name: OWN_NAME.to_owned(),
                user_prefix: Some(String::new()),
                auth_server: true,
                ..IssuerTable::default()
            },
            (_, None, None) => return None,
            (_, url, jwks) => IssuerTable {
                discovery: url.as_deref().is_some_and(|url| url != kubernetes::ISSUER),
                jwks: jwks.clone(),
                ..IssuerTable::default()
            },
        };
        let issuer = tokens.issuer.as_ref().or(keys.issuer_url.as_ref());
        Some(IssuerTable {
            issuer: issuer.cloned(),
            audience: tokens.audience.clone(),
            ..described
        })
    }

    /// Returns the settings as the text of a configuration file, without secrets in URLs. The
    /// secret that a file may not hold is a comment.
    ///
    /// # Errors
    /// Those of the serializer.
    pub(crate) fn to_toml(&self) -> Result<String, ExitError> {
        let mut settings = self.to_table().map_err(|error| {
            ExitError::Software(format!("the configuration cannot be printed: {error}"))
        })?;
        settings.iter_mut().for_each(|(_, it)| redact_urls(it));
        let secret = self.keys.app_secret.as_ref();
        let secret = secret.map_or("", |_| "# app-secret is set\n");
        Ok(format!("{settings}{secret}"))
    }

    /// Returns the settings as a configuration file has them, without secrets.
    ///
    /// # Errors
    /// Those of the serializer.
    pub(crate) fn to_table(&self) -> Result<Table, toml::ser::Error> {
        let mut settings = Table::try_from(self)?;
        if self.issuers.is_empty() {
            return Ok(settings);
        }
        // The file has one key for the flag and for the tables.
        settings.remove("audience");
        let tables = Value::try_from(self.all_issuers())?;
        settings.insert("issuer".to_owned(), tables);
        Ok(settings)
    }
}

/// An issuer beside the auth server, or in place of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct IssuerTable {
    /// Its name in logs and metrics.
    pub(crate) name: String,
    /// The accepted `iss`.
    pub(crate) issuer: Option<String>,
    /// True where its tokens have no `iss`; one that has an `iss` is not of this issuer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_issuer: bool,
    /// The accepted `iss` of several tenants with one key set, with `{…}` for the tenant.
    pub(crate) issuer_pattern: Option<String>,
    /// The accepted tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tenants: Vec<String>,
    /// True for the issuer whose keys come from `--auth-server`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) auth_server: bool,
    /// True where the document at the issuer's own address names the JWK Set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) discovery: bool,
    /// Further hosts that this document may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) jwks_hosts: Vec<String>,
    /// The address of its JWK Set, or a file with it or with its public keys in PEM.
    pub(crate) jwks: Option<String>,
    /// A token is for one of them.
    #[serde(
        default,
        deserialize_with = "texts",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(test, schemars(with = "OneOrSeveral"))]
    pub(crate) audience: Vec<String>,
    /// The claims that name it in place of `aud`: the first that is there and not empty counts.
    #[serde(
        default,
        deserialize_with = "texts",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(test, schemars(with = "OneOrSeveral"))]
    pub(crate) audience_claim: Vec<String>,
    /// The algorithms of the keys that count; empty for all.
    #[serde(
        default,
        deserialize_with = "algorithms",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) algorithms: Vec<Algorithm>,
    /// Fields of the user and their claims; of several the first that is there counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) claim: BTreeMap<String, OneOrSeveral>,
    /// The header in which a proxy in front sends its tokens; they are accepted nowhere else.
    pub(crate) token_header: Option<String>,
    /// Put before the id and account of its users; required where there are several issuers.
    pub(crate) user_prefix: Option<String>,
    /// Headers with claims of its tokens alone, as `NAME=CLAIM`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) claim_header: Vec<String>,
    /// Certificates to trust in place of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The proxy to its keys in place of the environment's, or `none`.
    pub(crate) keys_proxy: Option<String>,
    /// A file with the pod's own token, for `kubernetes:///`.
    pub(crate) token_file: Option<PathBuf>,
}

impl IssuerTable {
    /// Returns it without what a reload may change: the keys stay the same.
    #[must_use]
    pub(crate) fn about_keys(&self) -> Self {
        Self {
            issuer: self.issuer.clone().filter(|_| !self.auth_server),
            audience: Vec::new(),
            audience_claim: Vec::new(),
            claim: BTreeMap::new(),
            token_header: None,
            user_prefix: None,
            claim_header: Vec::new(),
            ..self.clone()
        }
    }
}

/// A text, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub(crate) enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

impl OneOrSeveral {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }
}

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(OneOrSeveral::deserialize(deserializer)?.as_slice().to_vec())
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

fn algorithms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Algorithm>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let named = |name: &String| asymmetric(name).map_err(D::Error::custom);
    names.iter().map(named).collect()
}
