//! Findings in manifests that another tool has made: what looks protected and is not.

mod network;
mod protected_pod;
mod report;
mod rules;
mod security;

pub(crate) use report::{Format, render};
use runtime::named_enum;
use serde_json::Value;

use crate::object::{Object, objects};
use crate::yaml::{Document, YamlError, documents};

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
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
    /// The rules, each with the text of a report.
    #[derive(PartialOrd, Ord)]
    pub(crate) enum Rule {
        NoSidecar = "no-sidecar",
        ServicePastSidecar = "service-past-sidecar",
        UnlabelledWorkload = "unlabelled-workload",
        UnlabelledService = "unlabelled-service",
        UnknownLabel = "unknown-label",
        PortTaken = "port-taken",
        HostNetwork = "host-network",
        PolicyPastSidecar = "policy-past-sidecar",
        PolicyBlocksSidecar = "policy-blocks-sidecar",
        NoNetworkPolicy = "no-network-policy",
        ProbeRejected = "probe-rejected",
        SecretMissing = "secret-missing",
        PodSecurity = "pod-security",
        GracePeriod = "grace-period",
    }
}

impl Rule {
    /// Returns the meaning in one sentence.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::NoSidecar => "A labelled workload has no sidecar.",
            Self::ServicePastSidecar => "A Service leads to a protected pod past its sidecar.",
            Self::UnlabelledWorkload => "A workload of a guarded namespace has no label.",
            Self::UnlabelledService => "A labelled Service leads to no sidecar of this input.",
            Self::UnknownLabel => "The label is neither \"true\" nor \"false\", and does nothing.",
            Self::PortTaken => "Another container declares a port of the sidecar.",
            Self::HostNetwork => "A protected pod is reached on the node's address.",
            Self::PolicyPastSidecar => "A NetworkPolicy allows the service's own port.",
            Self::PolicyBlocksSidecar => "No NetworkPolicy allows the sidecar's port.",
            Self::NoNetworkPolicy => "No NetworkPolicy covers a protected pod.",
            Self::ProbeRejected => "A probe goes through the sidecar on a path that needs a token.",
            Self::SecretMissing => "The sidecar needs a Secret or ConfigMap that is not there.",
            Self::PodSecurity => {
                "The sidecar, or the pod in its namespace, does not meet the Pod Security Standard."
            }
            Self::GracePeriod => "The pod ends before its sidecar has drained.",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) rule: Rule,
    pub(crate) object: String,
    /// The JSON pointer of the place in its object.
    pub(crate) pointer: String,
    /// The name of the input.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// A file, or standard input.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// An object with its place.
pub(crate) struct Located<'v> {
    pub(crate) object: Object<'v>,
    /// Of the object in its document.
    path: String,
    document: &'v Document,
    file: &'v str,
}

impl Located<'_> {
    pub(crate) fn finding(
        &self,
        level: Level,
        rule: Rule,
        pointer: &str,
        message: impl Into<String>,
    ) -> Finding {
        Finding {
            level,
            rule,
            object: self.object.described(),
            pointer: pointer.to_owned(),
            file: self.file.to_owned(),
            line: self.document.line(&format!("{}{pointer}", self.path)),
            message: message.into(),
        }
    }
}

/// Reads all inputs as one set of manifests, because a Service may be in another file than its pods.
///
/// # Errors
/// For text that is not YAML, with the name of its input.
pub(crate) fn lint(inputs: &[Input]) -> Result<Vec<Finding>, (String, YamlError)> {
    let mut read = Vec::new();
    for input in inputs {
        let found = documents(&input.text).map_err(|error| (input.name.clone(), error))?;
        read.extend(found.into_iter().map(|document| {
            let value = document.value();
            (input.name.as_str(), document, value)
        }));
    }
    let located: Vec<Located<'_>> = read.iter().flat_map(located_objects).collect();
    Ok(rules::findings(&located))
}

fn located_objects<'v>(
    (file, document, value): &'v (&'v str, Document, Value),
) -> impl Iterator<Item = Located<'v>> {
    objects(value)
        .into_iter()
        .map(move |(path, object)| Located {
            object,
            path,
            document,
            file,
        })
}
