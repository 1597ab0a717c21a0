//! The settings of the sidecars that are put into pods: the component's, changed by the operator.

use std::collections::BTreeMap;

use runtime::exit::Failure;

use super::component::Component;

pub(crate) const AUTH_SERVER: &str = "POSTERN_AUTH_SERVER";
pub(crate) const APP_SECRET_FILE: &str = "POSTERN_APP_SECRET_FILE";
pub(crate) const UPSTREAM: &str = "POSTERN_UPSTREAM";
pub(crate) const PASS: &str = "POSTERN_PASS";
/// Sources of the key that need no application.
const OTHER_KEY_SOURCES: [&str; 4] = [
    "POSTERN_JWKS_URL",
    "POSTERN_JWKS_FILE",
    "POSTERN_PUBLIC_KEY_FILE",
    "POSTERN_ISSUER_URL",
];

/// The name of an image without its registry and tag.
const IMAGE: &str = "localhost/postern/sidecar";

/// The operator's part of every sidecar.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) component: Component,
    pub(crate) image: String,
    /// By variable; the component's and the operator's.
    pub(crate) variables: BTreeMap<String, String>,
    /// The Secret of pods without an annotation.
    pub(crate) secret: Option<String>,
    /// The variables that the operator has set.
    pub(crate) set: BTreeMap<String, String>,
}

impl Settings {
    /// Combines the component with `NAME=VALUE` pairs; an empty value takes the component's away.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a pair without `=`.
    pub(crate) fn new(
        image: Option<String>,
        pairs: &[String],
        secret: Option<String>,
    ) -> Result<Self, Failure> {
        let component = Component::read()?;
        let mut variables = component.settings.clone();
        let mut set = BTreeMap::new();
        for pair in pairs {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Failure::Usage(format!("--set '{pair}': expected POSTERN_NAME=VALUE"))
            })?;
            if OTHER_KEY_SOURCES.contains(&name) && !value.is_empty() {
                variables.remove(AUTH_SERVER);
                variables.remove(APP_SECRET_FILE);
            }
            match value {
                "" => variables.remove(name),
                value => variables.insert(name.to_owned(), value.to_owned()),
            };
            set.insert(name.to_owned(), value.to_owned());
        }
        let image = image.unwrap_or_else(|| format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            component,
            image,
            variables,
            secret,
            set,
        })
    }
}

/// Returns the names of the variables in `NAME=VALUE` pairs.
pub(crate) fn names(pairs: &[String]) -> impl Iterator<Item = &str> {
    pairs
        .iter()
        .filter_map(|pair| Some(pair.split_once('=')?.0))
}
