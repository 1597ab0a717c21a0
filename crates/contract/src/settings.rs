//! Settings of a sidecar that other programs write for it, parsed alike by both.

pub mod probes;

use postern_http::methods::may_be_in_method;
use postern_http::pasted::error_of;
use postern_http::path::patterns::{ContextPath, PassList, PassListError, PathError};

/// Parses a pass list as its variable holds it: a comma follows each pattern except the last, and each method
/// in front of a pattern.
///
/// # Errors
/// The first unusable pattern.
pub fn pass_list(text: &str) -> Result<PassList, PassListError> {
    PassList::with_methods(whole_patterns(text.split(',')).iter().map(String::as_str))
}

/// Joins methods to the pattern that follows them: a value is split at every comma, and `GET,HEAD /a` is one
/// pattern. Blanks around a piece are removed.
pub fn whole_patterns(pieces: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let mut patterns = Vec::new();
    let mut methods = String::new();
    for piece in pieces {
        let piece = piece.as_ref().trim();
        methods.push_str(piece);
        if !piece.is_empty() && piece.bytes().all(may_be_in_method) {
            methods.push(',');
        } else {
            patterns.push(std::mem::take(&mut methods));
        }
    }
    // The comma after the last piece was added above.
    if methods.pop().is_some() {
        patterns.push(methods);
    }
    patterns
}

/// An unusable application name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppNameError {
    /// A name that is a path.
    #[error("write it without the leading '/'")]
    LeadingSlash,
    /// A name that is a variable.
    #[error("{0}")]
    Pasted(&'static str),
    /// A name that makes no context path.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// Returns the context path of a service by its application name; the empty name has none.
///
/// # Errors
/// For a name that makes no context path.
pub fn context_path(app_name: &str) -> Result<ContextPath, AppNameError> {
    match app_name {
        "" => Ok(ContextPath::default()),
        name if name.starts_with('/') => Err(AppNameError::LeadingSlash),
        name => match error_of(name) {
            Some(why) => Err(AppNameError::Pasted(why)),
            None => Ok(format!("/{name}").parse()?),
        },
    }
}

/// Checks the id of an application.
///
/// # Errors
/// For an empty id, because an empty variable of a pod is a label that the pod lacks, and for an id with
/// marks of a template.
pub fn app_id(id: &str) -> Result<(), &'static str> {
    match id {
        "" => Err("is empty; in Kubernetes it is the pod's label app.kubernetes.io/name"),
        _ if id.contains(char::is_control) => Err("holds a control character"),
        _ => match error_of(id) {
            Some(why) => Err(why),
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_belong_to_the_pattern_behind_them() {
        for (given, expected) in [
            ("/a/**,/b", &["/a/**", "/b"][..]),
            ("GET,HEAD /a,/b", &["GET,HEAD /a", "/b"]),
            ("/b,M-SEARCH /a", &["/b", "M-SEARCH /a"]),
            ("GET,/a", &["GET,/a"]),
            ("/a,GET", &["/a", "GET"]),
            ("/a/**, /b", &["/a/**", "/b"]),
            (" GET, HEAD  /a ,\n\t/b\n", &["GET,HEAD  /a", "/b"]),
            ("GET,HEAD", &["GET,HEAD"]),
            ("GET,", &["GET,"]),
            ("", &[""]),
        ] {
            assert_eq!(whole_patterns(given.split(',')), expected, "{given}");
        }
    }
}
