//! A service that never reads a body: it responds to each head and parses the following bytes as
//! the next request. Many handlers of GET requests work like that. The body of each response is the
//! method that it read.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::services::echo_service::MARK;
use crate::services::socket_server::{response, serve_each};

/// Response to a request line that does not begin with a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misread {
    /// 400, and the connection closes.
    Closes,
    /// 400, and the connection stays.
    Rejects,
    /// None, and the connection closes.
    Leaves,
    /// 200, as to any method.
    TakesAnyMethod,
}

/// The service. It lives as long as the test's process.
#[derive(Debug)]
pub struct CarelessService {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl CarelessService {
    /// Starts on a free port.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(misread: Misread) -> Self {
        let heads = Arc::new(Mutex::default());
        let seen = Arc::clone(&heads);
        let address = serve_each(move |_, connection| {
            serve(connection, misread, &seen);
            Ok(())
        });
        Self { address, heads }
    }

    /// Returns the value for `--upstream`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns everything that the service parsed as a request head, oldest first.
    pub fn heads(&self) -> Vec<String> {
        self.heads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn serve(mut connection: TcpStream, misread: Misread, seen: &Mutex<Vec<String>>) {
    let Ok(ours) = connection.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(ours);
    while let Some(head) = read_head(&mut reader) {
        let close = head.to_ascii_lowercase().contains("\r\nconnection: close");
        let first_line = head.lines().next().unwrap_or_default();
        let method = first_line.split(' ').next().unwrap_or_default();
        let is_read = method.bytes().all(|byte| byte.is_ascii_uppercase())
            || misread == Misread::TakesAnyMethod;
        let is_request = is_read && first_line.split(' ').count() == 3;
        let method = method.to_owned();
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(head);
        let status = match (is_request, misread) {
            (true, _) => "200 OK",
            (false, Misread::Leaves) => return,
            (false, _) => "400 Bad Request",
        };
        let response = response(status, &[&format!("{MARK}: 1")], method.as_bytes());
        let stays = is_request || misread == Misread::Rejects;
        if connection.write_all(&response).is_err() || close || !stays {
            return;
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    loop {
        let start = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head[start..].trim().is_empty() {
            return Some(head);
        }
    }
}
