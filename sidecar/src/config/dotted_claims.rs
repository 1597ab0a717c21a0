//! The names of claims with dots.

use crate::cli::ServeArgs;

/// Warns of claims with dots, which other products read as a path to a nested claim.
pub(super) fn warnings(args: &ServeArgs) -> Vec<String> {
    let mut warnings = Vec::new();
    for (flag, entries) in [
        ("claim", &args.rules.tokens.claim),
        ("claim-header", &args.rules.identity.claim_header),
    ] {
        for entry in entries {
            if let Some(why) = dot_warning(entry.split_once('=').unwrap_or_default().1) {
                warnings.push(format!("--{flag} '{entry}': {why}"));
            }
        }
    }
    warnings
}

/// Returns the warning about the name of a claim with dots. Names that are URLs are taken whole
/// everywhere.
pub(super) fn dot_warning(claim: &str) -> Option<String> {
    if claim.contains('/') || !claim.contains('.') {
        return None;
    }
    let nested = claim.replace('.', "/");
    Some(format!(
        "a name without a / in front is taken whole; a nested claim is written /{nested}, and this name \
         without the warning /{claim}"
    ))
}
