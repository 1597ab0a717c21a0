//! `GET` and `POST {ctx}/oauth/authorize`: MCP clients reject metadata without an authorization endpoint (RFC
//! 8414 §2), but this server has no page for logins.

use axum::response::Response;
use postern_contract::rejection::Rejection;

use crate::http::oauth;

/// Rejects every request. No client has a registered `redirect_uri`, so no browser is redirected (RFC
/// 6749 §4.1.2.1), and no parameter is read.
pub(crate) async fn authorize() -> Response {
    oauth::error(Rejection::ResponseTypeUnsupported.into())
}
