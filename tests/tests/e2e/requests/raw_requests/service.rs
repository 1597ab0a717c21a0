//! A service that plays the responses of a case, and records what it received.

use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tests::services::socket_server::serve_each;
use tests::wait;
use tests::wire::message::Message;

use super::cases::Reply;

/// Pause between two parts of a response, so that they arrive in two reads.
const PAUSE: Duration = Duration::from_millis(10);
/// Longer than the timeouts of the sidecars.
const SILENCE: Duration = Duration::from_secs(5);

/// A request as the service received it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    /// Number of the connection within the case.
    pub(super) connection: usize,
    pub(super) first_line: String,
    /// In order of their names; repeated ones in order.
    pub(super) fields: Vec<String>,
    /// The body without its framing; `None` if it did not end.
    pub(super) body: Option<String>,
}

/// The service. It lives as long as the test's process.
pub(super) struct ScriptedService {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    case: usize,
    replies: VecDeque<Reply>,
    seen: Vec<Seen>,
    /// Requests whose bodies are being read.
    unread: usize,
    connections: Vec<TcpStream>,
}

impl ScriptedService {
    pub(super) fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let address = serve_each(move |_, connection| {
            let _ = serve(connection, &shared);
            Ok(())
        });
        Self { address, state }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Begins a case, with new connections.
    pub(super) fn play(&self, replies: &[Reply]) {
        let mut state = self.state.lock().unwrap();
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.case += 1;
        state.unread = 0;
        state.seen.clear();
        state.replies = replies.to_vec().into();
    }

    /// Returns the requests of the case, once all are read.
    pub(super) fn seen(&self) -> Vec<Seen> {
        wait::within(SILENCE, || self.state.lock().unwrap().unread == 0);
        self.state.lock().unwrap().seen.clone()
    }
}

fn serve(connection: TcpStream, state: &Mutex<State>) -> Option<()> {
    let (case, number) = {
        let mut state = state.lock().unwrap();
        state.connections.push(connection.try_clone().ok()?);
        (state.case, state.connections.len() - 1)
    };
    connection.set_read_timeout(Some(SILENCE)).ok()?;
    connection.set_nodelay(true).ok()?;
    let mut writer = connection.try_clone().ok()?;
    let mut reader = BufReader::new(connection);
    loop {
        let message = Message::read_head(&mut reader).ok()??;
        let reply = {
            let mut state = state.lock().unwrap();
            if state.case != case {
                return None;
            }
            state.unread += 1;
            state.replies.pop_front().unwrap_or_default()
        };
        let (first_line, fields) = split(&message.head);
        let before_body = reply.before_body.then(|| play(&mut writer, &reply));
        let body = message.request_body(&mut reader).ok();
        let body = body.map(|body| body.escape_ascii().to_string());
        let is_whole = body.is_some();
        {
            let mut state = state.lock().unwrap();
            if state.case != case {
                return None;
            }
            state.unread -= 1;
            state.seen.push(Seen {
                connection: number,
                first_line,
                fields,
                body,
            });
        }
        if !is_whole {
            return None;
        }
        if before_body.is_none() {
            play(&mut writer, &reply)?;
        }
        if reply.close {
            let _ = writer.shutdown(Shutdown::Both);
            return None;
        }
    }
}

fn play(writer: &mut TcpStream, reply: &Reply) -> Option<()> {
    for (index, part) in reply.parts().enumerate() {
        if index > 0 {
            std::thread::sleep(PAUSE);
        }
        writer.write_all(&part).ok()?;
    }
    Some(())
}

/// Returns the first line, and the fields in the order of their names, which are in lower case.
pub(super) fn split(head: &[u8]) -> (String, Vec<String>) {
    let text = head.escape_ascii().to_string();
    let mut lines = text.split("\\r\\n").filter(|line| !line.is_empty());
    let first_line = lines.next().unwrap_or_default().to_owned();
    let field = |line: &str| match line.split_once(':') {
        Some((name, value)) if name.eq_ignore_ascii_case("transfer-encoding") => {
            format!("{name}:{value}").to_ascii_lowercase()
        }
        Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
        None => line.to_owned(),
    };
    let mut fields: Vec<_> = lines.map(field).collect();
    fields.sort_by_key(|field| name_of(field));
    (first_line, fields)
}

pub(super) fn name_of(field: &str) -> String {
    let (name, _) = field.split_once(':').unwrap_or((field, ""));
    name.to_ascii_lowercase()
}
