//! Findings in manifests that another tool has made: what looks protected and is not.

mod network;
mod rules;

use std::fmt::{self, Display, Formatter};

use runtime::named_enum;

pub(crate) use rules::lint;

use crate::object::Object;
use crate::yaml::Document;

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

/// One finding.
pub(crate) struct Finding<'d> {
    document: &'d Document,
    pub(crate) level: Level,
    /// As in docs/kubernetes/inject.md.
    rule: &'static str,
    message: String,
}

impl Display for Finding<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            document,
            level,
            rule,
            message,
        } = self;
        let object = Object::new(&document.value).described();
        let (location, level) = (&document.location, level.name());
        write!(f, "{location}: {level}: {object}: {message} [{rule}]")
    }
}

/// The findings, each with its level, rule and reason.
#[derive(Default)]
struct Findings<'d>(Vec<Finding<'d>>);

impl<'d> Findings<'d> {
    fn add(
        &mut self,
        document: &'d Document,
        level: Level,
        rule: &'static str,
        message: impl Into<String>,
    ) {
        self.0.push(Finding {
            document,
            level,
            rule,
            message: message.into(),
        });
    }
}
