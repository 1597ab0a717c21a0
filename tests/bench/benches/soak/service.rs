//! A service of HTTP/1.1 that names the request and its user in every response, and that closes
//! too early on some paths.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tests::services::socket_server::{response, serve_each};
use tests::wire::message::Message;
use tests::wire::raw_client::COMPLETION;

/// Field that names a request.
pub(crate) const ID: &str = "x-soak-id";
pub(crate) const EVENTS: &str = "/orders/events";

/// Just below the limit of unsent bytes at the end of a handler.
const PUBLIC_BYTES: usize = 65_000;
/// More than the sockets on the way hold for a slow reader.
const FILE_BYTES: usize = 4 * 1024 * 1024;
const EVENT_COUNT: usize = 20;
const EVENT_PAUSE: Duration = Duration::from_millis(20);

/// Starts the service, which lives as long as the process.
pub(crate) fn start() -> SocketAddr {
    serve_each(|_, connection| serve(connection))
}

/// Returns the whole response on `path`, which begins with a line that no other one has.
pub(crate) fn reply(path: &str, id: &str, user: &str, body: &[u8]) -> Vec<u8> {
    let mark = format!("{id} of {user}\n");
    let rest = match path {
        EVENTS => {
            let event = |nth| format!("data: {nth:2} {mark}\n").into_bytes();
            return (0..EVENT_COUNT).flat_map(event).collect();
        }
        "/orders/file" => vec![b'x'; FILE_BYTES],
        "/orders/public/file" => return vec![b'x'; PUBLIC_BYTES],
        _ => Vec::new(),
    };
    [mark.as_bytes(), body, &rest].concat()
}

fn serve(mut connection: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = Message::read_request(&mut reader)? {
        let path = String::from_utf8_lossy(&request.target()).into_owned();
        let user = serde_json::from_str::<Value>(&request.header("x-current-user").concat());
        let user = user.unwrap_or_default();
        let (id, user) = (request.header(ID).concat(), user["id"].as_str());
        let reply = reply(&path, &id, user.unwrap_or_default(), &request.body);
        match &*path {
            EVENTS => {
                let head = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked";
                write!(connection, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n")?;
                for event in reply.chunks(reply.len() / EVENT_COUNT) {
                    let size = format!("{:x}\r\n", event.len());
                    connection.write_all(&[size.as_bytes(), event, b"\r\n"].concat())?;
                    thread::sleep(EVENT_PAUSE);
                }
                connection.write_all(b"0\r\n\r\n")?;
            }
            "/orders/websocket" => {
                let head = format!("HTTP/1.1 101 Switching Protocols\r\n{COMPLETION}\r\n");
                connection.write_all(&[head.as_bytes(), &reply].concat())?;
                return io::copy(&mut reader, &mut connection).map(drop);
            }
            "/orders/dies" => return Ok(()),
            "/orders/half" => {
                let whole = response("200 OK", &[], &reply);
                return connection.write_all(&whole[..whole.len() - 1]);
            }
            // Also to HEAD, after which the bytes of a body are no response to any client.
            _ => connection.write_all(&response("200 OK", &[], &reply))?,
        }
    }
    Ok(())
}
