//! Clients that come from several addresses in 127.0.0.0/8.

use std::io;
use std::net::{SocketAddr, TcpStream};

use tokio::net::TcpSocket;

/// Room for responses that are not read: little, so that a few fill it.
const UNREAD_BYTES: u32 = 4 * 1024;

/// Connects as the client 127.0.0.`client`.
///
/// # Errors
/// When the address accepts no connection.
///
/// # Panics
/// When the system has no resources left.
pub fn connect_as(client: u8, address: SocketAddr) -> io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(UNREAD_BYTES)?;
        socket.bind(SocketAddr::new([127, 0, 0, client].into(), 0))?;
        socket.connect(address).await
    })?;
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}
