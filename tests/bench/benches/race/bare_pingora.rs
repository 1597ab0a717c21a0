//! Pingora as a plain proxy, the baseline of the sidecar's own work. It has the sidecar's settings
//! where they affect the cost.

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;

struct BareProxy {
    peer: HttpPeer,
}

#[async_trait]
impl ProxyHttp for BareProxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }
}

/// Proxies until it is killed.
pub(crate) fn serve(listen: &str, upstream: SocketAddr) {
    let conf = ServerConf {
        threads: 1,
        work_stealing: false,
        fast_timeout_to_tokio_threshold_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    let peer = HttpPeer::new(upstream, false, String::new());
    let mut proxy = http_proxy_service(&server.configuration, BareProxy { peer });
    proxy.add_tcp(listen);
    server.add_service(proxy);
    server.run_forever();
}
