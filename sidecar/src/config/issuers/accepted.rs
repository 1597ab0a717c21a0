//! The accepted `iss` of a table: one, the cluster's own, or one for each tenant.

use crate::cli::issuer_table::IssuerTable;
use crate::issuers::source::kubernetes;

/// Max number of tenants: a token that is not cached is compared with each.
const MAX_TENANTS: usize = 256;

/// Returns each accepted `iss` of a table; an empty list if its tokens have no `iss`.
pub(super) fn accepted_issuers(table: &IssuerTable) -> Result<Vec<String>, String> {
    let why = match (&table.issuer, &table.issuer_pattern, &table.tenants) {
        (None, None, None) if table.no_issuer && table.jwks.is_some() => return Ok(Vec::new()),
        _ if table.no_issuer => {
            "`no-issuer` needs `jwks`, and excludes `issuer`, `issuer-pattern` and `tenants`"
        }
        (Some(_), Some(_), _) => "`issuer` and `issuer-pattern` exclude each other",
        (None, None, _) => {
            "`issuer`, the accepted iss, is missing; `no-issuer = true` is for tokens without one"
        }
        (Some(_), None, Some(_)) => "`tenants` has an effect only with `issuer-pattern`",
        (None, Some(_), None) => "`issuer-pattern` needs `tenants`",
        (Some(_), None, None) if table.is_kubernetes() => {
            return match kubernetes::issuer(table.token_file.as_deref()) {
                Ok(issuer) => Ok(vec![issuer]),
                Err(why) => Err(format!("{}: {why}", kubernetes::ISSUER)),
            };
        }
        (Some(issuer), None, None) => return Ok(vec![issuer.as_str().to_owned()]),
        (None, Some(_), Some(tenants)) if tenants.0.len() > MAX_TENANTS => {
            return Err(format!("`tenants` has more than {MAX_TENANTS}"));
        }
        // Only listed tenants are accepted: a tenant's own administrator issues its tokens.
        (None, Some(pattern), Some(tenants)) => {
            return Ok(tenants
                .0
                .iter()
                .map(|it| pattern.issuer(it.as_str()))
                .collect());
        }
    };
    Err(why.to_owned())
}
