//! A proxy that opens tunnels (RFC 9110 §9.3.6), as at the edge of a company's network.

use std::io::{BufReader, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::services::socket_server::serve_each;
use crate::wire::message::Message;

/// A proxy on a free port; its threads end with the test.
#[derive(Debug)]
pub struct ConnectProxy {
    address: SocketAddr,
    tunnels: Arc<Mutex<Vec<String>>>,
    requests: Arc<Mutex<Vec<Message>>>,
}

impl ConnectProxy {
    /// Starts a proxy.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start() -> Self {
        Self::leading_to(None)
    }

    /// Starts a proxy whose tunnels all lead to one server, whatever name they are for.
    ///
    /// # Panics
    /// When no port is free.
    pub fn to(server: SocketAddr) -> Self {
        Self::leading_to(Some(server))
    }

    fn leading_to(server: Option<SocketAddr>) -> Self {
        let tunnels = Arc::<Mutex<Vec<String>>>::default();
        let requests = Arc::<Mutex<Vec<Message>>>::default();
        let (opened, received) = (Arc::clone(&tunnels), Arc::clone(&requests));
        let address = serve_each(move |_, client| tunnel(client, server, &opened, &received));
        Self {
            address,
            tunnels,
            requests,
        }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the requests for tunnels so far.
    pub fn requests(&self) -> Vec<Message> {
        let requests = self.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the address, for `keys-proxy`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the targets of the tunnels so far.
    pub fn tunnels(&self) -> Vec<String> {
        let tunnels = self.tunnels.lock();
        tunnels.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn tunnel(
    mut client: TcpStream,
    server: Option<SocketAddr>,
    opened: &Mutex<Vec<String>>,
    received: &Mutex<Vec<Message>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let Some(request) = Message::read_request(&mut reader)? else {
        return Ok(());
    };
    let target = String::from_utf8_lossy(&request.target()).into_owned();
    if !request.head.starts_with(b"CONNECT ") {
        return client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
    }
    let mut server = match server {
        Some(server) => TcpStream::connect(server)?,
        None => TcpStream::connect(&target)?,
    };
    let mut requests = received.lock().unwrap_or_else(PoisonError::into_inner);
    requests.push(request);
    drop(requests);
    let mut tunnels = opened.lock().unwrap_or_else(PoisonError::into_inner);
    tunnels.push(target);
    drop(tunnels);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut back, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let upload = std::thread::spawn(move || {
        let _ = copy(&mut reader, &mut server);
        let _ = server.shutdown(Shutdown::Write);
    });
    let _ = copy(&mut back, &mut to_client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = upload.join();
    Ok(())
}
