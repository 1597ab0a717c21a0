//! The accepted `iss` of a table: one, the cluster's own, or one for each tenant.

use crate::cli::issuer_table::IssuerTable;
use crate::issuers::source::kubernetes;

/// Max number of tenants: a token that is not cached is compared with each.
const MAX_TENANTS: usize = 256;

/// Returns each accepted `iss` of a table; none where its tokens have none.
pub(super) fn accepted(table: &IssuerTable) -> Result<Vec<String>, String> {
    match (table.issuer.as_deref(), table.issuer_pattern.as_deref()) {
        (None, None) if table.no_issuer && table.jwks.is_some() && table.tenants.is_empty() => {
            Ok(Vec::new())
        }
        _ if table.no_issuer => Err(
            "`no-issuer` needs `jwks`, and excludes `issuer`, `issuer-pattern` and `tenants`"
                .to_owned(),
        ),
        (Some(_), Some(_)) => Err("`issuer` and `issuer-pattern` exclude each other".to_owned()),
        (None | Some(""), None) => Err(
            "`issuer`, the accepted iss, is missing; `no-issuer = true` is for tokens without one"
                .to_owned(),
        ),
        (Some(_), None) if !table.tenants.is_empty() => {
            Err("`tenants` has an effect only with `issuer-pattern`".to_owned())
        }
        (Some(kubernetes::ISSUER), None) => kubernetes::issuer(table.token_file.as_deref())
            .map(|issuer| vec![issuer])
            .map_err(|why| format!("{}: {why}", kubernetes::ISSUER)),
        (Some(issuer), None) => Ok(vec![issuer.to_owned()]),
        (None, Some(pattern)) => tenant_issuers(pattern, &table.tenants),
    }
}

/// Puts each tenant into the pattern: only listed ones are accepted, because a tenant's own
/// administrator issues its tokens.
fn tenant_issuers(pattern: &str, tenants: &[String]) -> Result<Vec<String>, String> {
    let parts = pattern
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?.1)))
        .filter(|(_, after)| !after.contains(['{', '}']));
    let Some((before, after)) = parts else {
        return Err(format!(
            "issuer-pattern '{pattern}': expected one {{…}} for the tenant"
        ));
    };
    if tenants.is_empty() || tenants.iter().any(String::is_empty) {
        return Err("`tenants`: at least one is needed, none of them empty".to_owned());
    }
    // A pattern would be compared literally; a part of a path could be another issuer's.
    let is_one = |tenant: &&String| {
        let plain = |c: char| c.is_ascii_graphic() && !"*?/\\#{}".contains(c);
        tenant.chars().all(plain) && !tenant.starts_with('.')
    };
    if let Some(tenant) = tenants.iter().find(|tenant| !is_one(tenant)) {
        return Err(format!(
            "tenant '{tenant}': is not the name of one; list each"
        ));
    }
    if tenants.len() > MAX_TENANTS {
        return Err(format!("`tenants` has more than {MAX_TENANTS}"));
    }
    let issuer = |tenant: &String| format!("{before}{tenant}{after}");
    Ok(tenants.iter().map(issuer).collect())
}
