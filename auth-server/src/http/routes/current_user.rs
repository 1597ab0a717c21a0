//! `GET {ctx}/current/user/details` (contract §4.2): the user of the verified token.

use axum::extract::Request;
use axum::response::Response;
use postern_contract::envelope::MSG_OPERATION_SUCCEEDED;
use postern_contract::rejection::Rejection;
use postern_token::claims::Claims;

use crate::http::response::{self, ErrorResponse};

pub(crate) async fn current_user(mut request: Request) -> Result<Response, ErrorResponse> {
    let Some(claims) = request.extensions_mut().remove::<Claims>() else {
        // Only reachable if the path needed no token.
        return Err(Rejection::TokenMissing.into());
    };
    Ok(response::ok(
        MSG_OPERATION_SUCCEEDED,
        claims.into_user_details(),
    ))
}
