//! `GET {ctx}/current/user/details` (contract §4.2): the user of the verified token.

use axum::extract::Request;
use axum::response::Response;
use wire::api::envelope::MSG_OPERATION_SUCCEEDED;
use wire::rejection::Rejection;

use crate::http::middleware::authenticate::CurrentUser;
use crate::http::response;

pub(crate) async fn current_user(mut request: Request) -> Response {
    match request.extensions_mut().remove() {
        Some(CurrentUser(claims)) => {
            response::ok(MSG_OPERATION_SUCCEEDED, claims.into_user_details())
        }
        // Only reachable if the path needed no token.
        None => response::rejection(Rejection::TokenMissing),
    }
}
