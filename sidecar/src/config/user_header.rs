//! The user header and the claim headers.

use postern_process::exit::ExitError;

use super::flag_value::flag_error;
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
