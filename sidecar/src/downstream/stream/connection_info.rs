//! Traits of a Pingora connection beside reading and writing, forwarded to the transport.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, Digest, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use pingora::proxy::Session;
use runtime::net::connection_slots::Activity;

use super::{ClientStream, EndedResponses};

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.transport.socket().id()
    }
}

impl Ssl for ClientStream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.transport.tls.clone()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.transport.alpn()
    }
}

#[async_trait]
impl Peek for ClientStream {
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        self.peek().await?;
        buffer.fill(0);
        let length = buffer.len().min(self.peeked.len());
        if let (Some(head), Some(peeked)) = (buffer.get_mut(..length), self.peeked.get(..length)) {
            head.copy_from_slice(peeked);
        }
        Ok(true)
    }
}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.transport.socket().get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.transport.socket().get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.transport.socket().get_write_pending_time()
    }
}

/// Carries our data to each request of an HTTP/2 connection, which cannot reach its stream: the
/// proxy digest is the only digest with room for it.
impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        if !self.is_http_2 {
            return None;
        }
        let info = Box::new(ConnectionInfo {
            ended: self.window_deadline.ended().clone(),
            activity: self.activity.clone(),
        });
        let unused = Box::new(ResponseHeader::build_no_case(StatusCode::OK, None).ok()?);
        Some(Arc::new(ProxyDigest::new(unused, Some(info))))
    }
}

/// The parts of an HTTP/2 connection that its requests reach.
#[derive(Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) ended: EndedResponses,
    pub(crate) activity: Activity,
}

impl ConnectionInfo {
    /// Returns them for a request's connection; `None` for HTTP/1.
    pub(crate) fn of(digest: Option<&Digest>) -> Option<&Self> {
        let digest = digest?.proxy_digest.as_ref()?;
        digest.user_data.as_ref()?.downcast_ref()
    }
}

impl EndedResponses {
    /// Returns the ended responses of the session's connection; `None` for HTTP/1.
    pub(crate) fn of(session: &Session) -> Option<Self> {
        Some(ConnectionInfo::of(session.digest())?.ended.clone())
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.transport.socket().get_socket_digest()
    }
}
