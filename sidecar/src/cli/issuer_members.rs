//! The values of an `[[issuer]]` table, each with its rule.

use std::ops::Range;
use std::str::FromStr;

use postern_http::host::server_url::ServerUrl;
use postern_process::command_line::name;
use postern_token::keys::Algorithm;
use postern_token::keys::algorithms::asymmetric;

/// Defines rules that a text obeys or not, which have no other value.
macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident: $obeys:expr, $expected:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct $name;

        impl FromStr for $name {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let obeys: fn(&str) -> bool = $obeys;
                if obeys(text) {
                    Ok(Self)
                } else {
                    Err($expected)
                }
            }
        }
    )+};
}

rules! {
    /// The rule of a table's name, which stands in labels of metrics and in names of files: `new` is the
    /// end of the one that replaces a key cache, `revocations-from` names a list without an issuer.
    TableName:
        |text| {
            (1..=32).contains(&text.len()) && text.chars().all(may_be_in_table_name)
                && !["new", "revocations-from"].contains(&text)
        },
        "expected 1 to 32 of a-z, 0-9, - and _, but neither new nor revocations-from";

    /// The rule of the text before the names of users: long enough for any name of an issuer, short
    /// enough for each user header.
    Prefix:
        |text| text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic()),
        "expected up to 64 visible ASCII characters";

    /// The rule of a tenant's name. A pattern would be compared literally; a part of a path could be
    /// another issuer's.
    Tenant:
        |text| {
            !text.is_empty() && text.chars().all(may_be_in_tenant) && !text.starts_with('.')
        },
        "is not the name of one; list each";
}

fn may_be_in_table_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c)
}

fn may_be_in_tenant(c: char) -> bool {
    c.is_ascii_graphic() && !"*?/\\#{}'\"".contains(c)
}

/// The `iss` of several tenants, with one `{…}` for the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IssuerPattern {
    text: String,
    tenant: Range<usize>,
}

impl FromStr for IssuerPattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = name(text)?;
        let braces: Vec<_> = text.match_indices(['{', '}']).collect();
        match braces[..] {
            [(start, "{"), (end, "}")] => Ok(Self {
                text,
                tenant: start..end + 1,
            }),
            _ => Err("expected one {…} for the tenant"),
        }
    }
}

impl IssuerPattern {
    /// Returns the `iss` of a tenant.
    pub(crate) fn issuer(&self, tenant: &str) -> String {
        let mut issuer = self.text.clone();
        issuer.replace_range(self.tenant.clone(), tenant);
        issuer
    }
}

/// An algorithm of an issuer, whose keys are public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asymmetric(pub(crate) Algorithm);

impl FromStr for Asymmetric {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        asymmetric(text).map(Self)
    }
}

/// The treatment of proofs for the tokens of an issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dpop {
    Allowed,
    Required,
}

impl FromStr for Dpop {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "allowed" => Ok(Self::Allowed),
            "required" => Ok(Self::Required),
            _ => Err("expected allowed or required"),
        }
    }
}

/// The way to the keys in place of the environment's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeysWay {
    Direct,
    Proxy(ServerUrl),
}

impl FromStr for KeysWay {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text == "none" {
            return Ok(Self::Direct);
        }
        match ServerUrl::from_http(text) {
            Ok(proxy) if !proxy.is_https() && proxy.target() == "/" => Ok(Self::Proxy(proxy)),
            _ => Err(
                "expected none, or http://HOST:PORT without a path and without user information",
            ),
        }
    }
}
