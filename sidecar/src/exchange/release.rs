//! The end of an exchange on its connection to the service, and what it shows of the service: if it
//! has read the body before, and sent no more than its response.

use std::time::Instant;

use http::StatusCode;
use pingora::{Error, ErrorSource};
use postern_transport::net::shares::Holder;

use super::Serving;
use super::downstream::Downstream;
use super::upload::Upload;
use crate::upstream::broke_before_response;
use crate::upstream::connections::conduct::is_of_misread_request;
use crate::upstream::connections::{Connected, LastRequest};
use crate::upstream::errors;
use crate::upstream::service::Service;

/// A request whose body the service may have taken for a part of the next one, to which it sent this
/// status.
pub(super) struct Suspect(pub(super) LastRequest, pub(super) StatusCode);

impl<C: Downstream> Serving<'_, C> {
    /// Notes the failure of a request after the body of another one, or with a whole connection of HTTP/2.
    pub(super) fn note_failure(&self, connected: &Connected, error: &Error) {
        let conduct = &self.exchanges.connections.conduct;
        let cause = error.root_cause().downcast_ref::<h2::Error>();
        let is_of_service = *error.esource() == ErrorSource::Upstream;
        if is_of_service && cause.is_some_and(errors::ends_connection) {
            conduct.http_2_was_broken();
        }
        // The service may as well have closed a connection that was idle for too long.
        let has_head = self.progress.download.head.is_some();
        if connected.behind.is_some() && !has_head && broke_before_response(error) {
            conduct.body_may_be_left(Instant::now());
        }
    }

    /// Ends an exchange whose response was sent. The connection serves another request if both messages
    /// have ended on it.
    pub(super) fn release(
        &mut self,
        mut connected: Connected,
        upload: &Upload,
        holder: Holder,
        suspect: Option<Suspect>,
    ) {
        let ended = Instant::now();
        self.progress.ended = Some(ended);
        let (request, download) = (&self.request, &self.progress.download);
        let Some(head) = download.head else {
            return;
        };
        let conduct = &self.exchanges.connections.conduct;
        // The repeated request has now succeeded or failed without a body before it.
        if let Some(Suspect(last, status)) = suspect {
            match head.status.as_u16() {
                ..400 => conduct.body_was_left(&last),
                // A different error may come from a limit or from a change since, so only a doubt remains.
                _ if head.status != status => conduct.body_may_be_left(ended),
                _ => {}
            }
        }
        // A connection of HTTP/2 stays by itself, and is not noted with each of its requests.
        if matches!(connected.service, Service::Http2(_)) {
            return;
        }
        let behind = connected.behind.take();
        let has_body = upload.is_framed() && !request.rules.upstream_request.reuse_after_body;
        let last = LastRequest::new(request.head.method.clone(), request.head.target(), has_body);
        // The surplus bytes belong to no known request: the connection is not kept.
        if download.has_surplus() {
            conduct.surplus_after(&last);
            behind
                .iter()
                .for_each(|behind| conduct.body_was_left(behind));
            return;
        }
        // It was passed on, not repeated, so only a doubt remains.
        if behind.is_some() && is_of_misread_request(head.status) {
            conduct.body_may_be_left(ended);
        }
        if upload.is_sent() && !request.closes_service && download.leaves_connection_usable() {
            self.exchanges
                .connections
                .keep(connected, holder, last, ended);
        }
    }
}
