//! The user header, and the names of claims with dots.

use postern_process::exit::ExitError;

use super::flag_value::flag_error;
use crate::cli::ServeArgs;
use crate::cli::policy_args::IdentityArgs;
use crate::identity::user_header::UserHeader;

/// Bound on the user header's value, together with those of `--claim-header`: most services take
/// heads of 8 KiB.
const MAX_USER_HEADER_BYTES: usize = 6 * 1024;

pub(super) fn user_header(args: &IdentityArgs) -> Result<UserHeader, ExitError> {
    let mut header = UserHeader::new(&args.user_header, MAX_USER_HEADER_BYTES)
        .map_err(|error| flag_error("user-header", &args.user_header, error))?
        .with_encoding(args.user_header_encoding);
    for entry in &args.claim_header {
        header = header
            .with_claim(entry, None)
            .map_err(|error| flag_error("claim-header", entry, error))?;
    }
    Ok(header)
}

/// Warns of claims with dots, which other products read as a path to a nested claim.
pub(super) fn dotted_claims(args: &ServeArgs) -> Vec<String> {
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
