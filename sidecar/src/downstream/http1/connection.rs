//! The requests of one connection.

use postern_contract::rejection::Rejection;
use postern_transport::drain::DrainWatcher;
use postern_transport::tls::first_bytes::note_handshake;

use super::downstream::{HEAD_READ, Http1Downstream};
use crate::exchange::Exchanges;
use crate::identity::client::Client;
use postern_http::framing::head_search::HeadSearch;
use postern_http::request::MAX_HEAD_BYTES;
use postern_http::request::received::{self, ReceivedHead};

/// A head of this length is parsed only once its end has arrived.
const LONG_HEAD: usize = 2 * HEAD_READ;

/// Serves a connection to its end.
pub(crate) async fn serve(
    exchanges: &Exchanges,
    downstream: &mut Http1Downstream,
    client: &Client,
    drain: &mut DrainWatcher,
) {
    loop {
        let head = match next_head(downstream, drain).await {
            Ok(Some(head)) => head,
            Ok(None) => break,
            Err(rejection) => {
                if let (Some(peer), false) = (client.address, client.tls) {
                    note_handshake(peer, &downstream.received);
                }
                return Box::pin(downstream.reject_unparsed(exchanges, rejection, client.address))
                    .await;
            }
        };
        // `had_large_buffer` is read before the head is moved: only a buffer that has grown is released.
        let had_large_buffer = !head.body.is_done() || head.raw.len() > HEAD_READ;
        downstream.activity.serves();
        // After `None` no other request may follow, but the response still has to arrive.
        let Some(ended) = exchanges.serve(head, downstream, client).await else {
            return downstream.close_behind_response().await;
        };
        downstream.await_next(ended, had_large_buffer);
    }
    downstream.close().await;
}

/// Waits for the head of a request; returns `None` if no other follows.
async fn next_head(
    downstream: &mut Http1Downstream,
    drain: &mut DrainWatcher,
) -> Result<Option<ReceivedHead>, Rejection> {
    let mut search = HeadSearch::default();
    loop {
        // Requests may be pipelined: the next head can be here before any read.
        if !downstream.received.is_empty()
            && search.may_be_whole(&downstream.received, LONG_HEAD)
            && let Some(head) = received::take(&mut downstream.received)?
        {
            return Ok(Some(head));
        }
        // The length is checked after the parser: a short head may precede many more bytes.
        if downstream.received.len() > MAX_HEAD_BYTES {
            return Err(Rejection::RequestHeaderTooLarge);
        }
        if !downstream.read_head(drain).await? {
            return Ok(None);
        }
    }
}
