//! TCP to the service. Pingora's own socket cannot be reached once it is opened, and the pool needs
//! it for an acknowledgement.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::ext;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use pingora::{Error, ErrorType};
use postern_transport::net::listener::keep_alive;
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connected socket. One clone carries the connection, the other one stays beside it.
#[derive(Debug, Clone)]
pub(super) struct Socket(Arc<TcpStream>);

impl Socket {
    /// Acknowledges all that has arrived. Many services send the second of two short writes only
    /// then (Nagle's algorithm), and the kernel would wait for the next request.
    pub(super) fn acknowledge(&self) {
        // A socket that fails here fails the next request as well.
        let _ = self.0.set_quickack(true);
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buffer) {
                // The readiness was out of date, which `try_read_buf` has noted: poll again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?))
    }
}

impl VirtualSocket for Socket {
    fn set_socket_option(&self, option: VirtualSockOpt) -> io::Result<()> {
        match option {
            VirtualSockOpt::NoDelay => self.0.set_nodelay(true),
            // Pingora sets no other option with the settings of this program.
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Opens the socket of one connection, and keeps a clone of it.
#[derive(Debug, Default)]
pub(super) struct Dial(Mutex<Option<Socket>>);

impl Dial {
    /// Takes the socket that was opened.
    pub(super) fn opened(&self) -> Option<Socket> {
        self.0.lock().take()
    }
}

#[async_trait]
impl L4Connect for Dial {
    async fn connect(&self, address: &SocketAddr) -> pingora::Result<Stream> {
        let address = address
            .as_inet()
            .ok_or_else(|| Error::new(ErrorType::ConnectError))?;
        let socket = Socket(Arc::new(ext::connect(address, None).await?));
        // A stream may be silent for long, and the host of its service may vanish meanwhile. A socket without keepalive
        // works all the same.
        let _ = keep_alive(&*socket.0);
        // Pingora owns the stream from here on; the pool needs a clone of the socket.
        *self.0.lock() = Some(socket.clone());
        Ok(VirtualSocketStream::new(Box::new(socket)).into())
    }
}
