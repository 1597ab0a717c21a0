//! Findings in manifests that another tool has made: what looks protected and is not.

mod network;
mod rules;

use std::fmt::{self, Display, Formatter};

use runtime::named_enum;
use serde::Serialize;

use crate::object::Object;
use crate::settings::Settings;
use crate::yaml::{Document, Location};

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// The service is reached without a token, or not at all.
    Error,
    /// It cannot be decided from these manifests, or loses requests.
    Warning,
    /// It is right only if the service does its part.
    Note,
}

named_enum! {
    /// The rules.
    pub(crate) enum Rule {
        NoSidecar = "no-sidecar",
        Rejected = "rejected",
        ServicePastSidecar = "service-past-sidecar",
        UnlabelledService = "unlabelled-service",
        PolicyPastSidecar = "policy-past-sidecar",
        PolicyBlocksSidecar = "policy-blocks-sidecar",
        NoNetworkPolicy = "no-network-policy",
        ProbeAmongClients = "probe-among-clients",
        SecretMissing = "secret-missing",
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) rule: &'static str,
    pub(crate) object: String,
    #[serde(flatten)]
    pub(crate) location: Location,
    pub(crate) message: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "note",
        };
        let Self {
            location,
            object,
            message,
            rule,
            ..
        } = self;
        write!(f, "{location}: {level}: {object}: {message} [{rule}]")
    }
}

/// An object with its location.
pub(crate) struct Located<'v> {
    pub(crate) object: Object<'v>,
    location: &'v Location,
}

impl Located<'_> {
    pub(crate) fn finding(&self, level: Level, rule: Rule, message: impl Into<String>) -> Finding {
        Finding {
            level,
            rule: rule.name(),
            object: self.object.described(),
            location: self.location.clone(),
            message: message.into(),
        }
    }
}

/// Reads all documents as one set of manifests: a Service may be in another file than its pods.
pub(crate) fn lint(documents: &[Document], settings: &Settings) -> Vec<Finding> {
    let located = documents
        .iter()
        .map(|Document { location, value }| Located {
            object: Object::new(value),
            location,
        });
    rules::findings(&located.collect::<Vec<_>>(), settings)
}
