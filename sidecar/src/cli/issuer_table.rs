//! The `[[issuer]]` tables of the configuration file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use runtime::command_line::serialize::each_displayed;
use runtime::process::exit::ExitError;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};
use wire::keys::algorithms::AsymmetricAlgorithm;

use super::ServeArgs;

/// The name of the auth server's issuer without a table.
const OWN_NAME: &str = "auth-server";

/// The tables, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IssuerTables {
    /// The table of the auth server without what the flags say; `None` where they say all.
    own: Option<IssuerTable>,
    pub(crate) tables: Vec<IssuerTable>,
}

impl IssuerTables {
    /// Returns true without tables: the flags describe the only issuer.
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_none() && self.tables.is_empty()
    }

    /// Returns true if both have the same issuers with the same keys; audiences, claims, prefixes
    /// and headers may differ.
    pub(crate) fn have_same_keys(&self, other: &Self) -> bool {
        let keys = |table: &IssuerTable| IssuerTable {
            audience: Vec::new(),
            audience_claim: None,
            claim: BTreeMap::new(),
            token_header: None,
            user_prefix: None,
            claim_header: Vec::new(),
            ..table.clone()
        };
        let keys_of = |tables: &Self| tables.each().map(keys).collect::<Vec<_>>();
        keys_of(self) == keys_of(other)
    }

    /// Returns the auth server's table, if it has one.
    pub(crate) const fn own(&self) -> Option<&IssuerTable> {
        self.own.as_ref()
    }

    /// Returns all tables, the auth server's first.
    fn each(&self) -> impl Iterator<Item = &IssuerTable> {
        self.own.iter().chain(&self.tables)
    }
}

impl ServeArgs {
    /// Takes the tables; the one of the auth server sets the flags about its tokens.
    ///
    /// # Errors
    /// [`ExitError::Config`] for such a table that says more, or the same as a flag.
    pub(crate) fn set_issuers(&mut self, tables: Vec<IssuerTable>) -> Result<(), ExitError> {
        for table in tables {
            match table.auth_server {
                true => self.set_own_issuer(table)?,
                false => self.issuers.tables.push(table),
            }
        }
        Ok(())
    }

    fn set_own_issuer(&mut self, mut table: IssuerTable) -> Result<(), ExitError> {
        let tokens = &mut self.rules.tokens;
        let plain = IssuerTable {
            name: table.name.clone(),
            issuer: table.issuer.clone(),
            audience: table.audience.clone(),
            user_prefix: table.user_prefix.clone(),
            claim_header: table.claim_header.clone(),
            auth_server: true,
            ..IssuerTable::default()
        };
        let why = if self.issuers.own.is_some() {
            "there is one auth server, and another table has auth-server = true"
        } else if self.keys.auth_server.is_none() {
            "auth-server = true: no auth server is set"
        } else if table != plain {
            "with auth-server = true a table has name, issuer, audience, user-prefix and claim-header only"
        } else if table.issuer.as_deref().is_none_or(str::is_empty) {
            "`issuer`, the accepted iss, is missing"
        } else if tokens.issuer.is_some() || !tokens.audience.is_empty() {
            "`issuer` or `audience` outside of the tables (flag, variable or key) is set already"
        } else {
            tokens.issuer = table.issuer.take();
            tokens.audience = std::mem::take(&mut table.audience);
            self.issuers.own = Some(table);
            return Ok(());
        };
        Err(ExitError::Config(format!(
            "[[issuer]] {}: {why}",
            table.name
        )))
    }

    /// Returns the table that says what the flags do; `None` where they name no source of keys.
    pub(crate) fn issuer_of_flags(&self) -> Option<IssuerTable> {
        let (keys, tokens) = (&self.keys, &self.rules.tokens);
        let described = match (&keys.auth_server, &keys.issuer_url, &keys.jwks) {
            (Some(_), ..) => self
                .issuers
                .own()
                .cloned()
                .unwrap_or_else(IssuerTable::of_flags),
            (_, None, None) => return None,
            (_, url, jwks) => IssuerTable {
                discovery: url.is_some(),
                jwks: jwks.clone(),
                ..IssuerTable::default()
            },
        };
        Some(IssuerTable {
            issuer: self.issuer().map(str::to_owned),
            audience: tokens.audience.clone(),
            ..described
        })
    }

    /// Returns the settings as the text of a configuration file. The secret, which a file may not
    /// hold, is a comment.
    ///
    /// # Errors
    /// Those of the serializer.
    pub(crate) fn to_toml(&self) -> Result<String, ExitError> {
        let settings = self.to_table().map_err(|error| {
            ExitError::Software(format!("the configuration cannot be printed: {error}"))
        })?;
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
        let mut tables = Vec::new();
        // The file has one key for the flag and for the tables.
        settings.remove("audience");
        for table in self.issuer_of_flags().iter().chain(&self.issuers.tables) {
            tables.push(Value::try_from(table)?);
        }
        settings.insert("issuer".to_owned(), Value::Array(tables));
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) issuer: Option<String>,
    /// The accepted `iss` of several tenants with one key set, with `{…}` for the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) issuer_pattern: Option<String>,
    /// The accepted tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tenants: Vec<String>,
    /// True for the issuer whose keys come from `--auth-server`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) auth_server: bool,
    /// True where the document at the issuer's own address names the JWK Set.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) discovery: bool,
    /// Further hosts that this document may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) jwks_hosts: Vec<String>,
    /// The address of its JWK Set, or a file with it or with its public keys in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) jwks: Option<String>,
    /// A token is for one of them.
    #[serde(
        default,
        deserialize_with = "texts",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(test, schemars(with = "OneOrSeveral"))]
    pub(crate) audience: Vec<String>,
    /// The claim that names it in place of `aud`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) audience_claim: Option<String>,
    /// The algorithms of the keys that count; empty for all.
    #[serde(
        default,
        deserialize_with = "algorithms",
        serialize_with = "each_displayed",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) algorithms: Vec<AsymmetricAlgorithm>,
    /// Fields of the user and their claims; of several the first that is there counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) claim: BTreeMap<String, OneOrSeveral>,
    /// The header in which a proxy in front sends its tokens; they are accepted nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_header: Option<String>,
    /// Put before the id and account of its users; required where there are several issuers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_prefix: Option<String>,
    /// Headers with claims of its tokens alone, as `NAME=CLAIM`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) claim_header: Vec<String>,
    /// Certificates to trust in place of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// The proxy through which its keys are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keys_proxy: Option<String>,
    /// A file with the pod's own token, for `kubernetes:///`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
}

impl IssuerTable {
    /// Returns the table that says the same as the flags of the auth server.
    fn of_flags() -> Self {
        Self {
            name: OWN_NAME.to_owned(),
            user_prefix: Some(String::new()),
            auth_server: true,
            ..Self::default()
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

fn algorithms<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<AsymmetricAlgorithm>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let named = |name: &String| name.parse().map_err(D::Error::custom);
    names.iter().map(named).collect()
}
