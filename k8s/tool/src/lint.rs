//! Findings in manifests that another tool has made: what looks protected and is not.

mod network;
mod rules;

use std::fmt::{self, Display, Formatter};

use runtime::named_enum;

use crate::object::Object;
use crate::settings::Settings;
use crate::yaml::{Document, Location};

named_enum! {
    /// The weight of a finding.
    pub(crate) enum Level {
        /// The service is reached without a token, or not at all.
        Error = "error",
        /// It cannot be decided from these manifests, or loses requests.
        Warning = "warning",
        /// It is right only if the service does its part.
        Note = "note",
    }
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
        ProbeUnnamed = "probe-unnamed",
        MonitorUnserved = "monitor-unserved",
        SecretMissing = "secret-missing",
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) rule: Rule,
    pub(crate) object: String,
    pub(crate) location: Location,
    pub(crate) message: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            level,
            rule,
            object,
            location,
            message,
        } = self;
        let (level, rule) = (level.name(), rule.name());
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
            rule,
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
