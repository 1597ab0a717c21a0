//! The cases: a row each.

use serde::Deserialize;
use tests::tables;
use tests::template;

/// The last request of each case, so that the sidecar closes the connection.
const LAST: &[u8] = b"GET /orders/public/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// The response to a request without one in the case.
const USUAL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

/// `raw_requests.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<Row>,
}

/// One case. Each character is one byte, so none is beyond `\u00ff`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The bytes of the client, in segments.
    client: Vec<String>,
    /// The responses of the service, in order.
    #[serde(default)]
    service: Vec<ReplyRow>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyRow {
    parts: Vec<String>,
    /// True if the connection closes behind it.
    #[serde(default)]
    close: bool,
    /// True if it is sent before the body of the request is read.
    #[serde(default)]
    before_body: bool,
}

/// The bytes of a client, and the response of the service.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) client: Vec<Vec<u8>>,
    pub(super) service: Vec<Reply>,
}

/// One response of the service, in parts.
#[derive(Clone)]
pub(super) struct Reply {
    pub(super) parts: Vec<Vec<u8>>,
    pub(super) close: bool,
    pub(super) before_body: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            parts: vec![USUAL.to_vec()],
            close: false,
            before_body: false,
        }
    }
}

/// Reads the table, with this valid token.
pub(super) fn cases(token: &str) -> Vec<Case> {
    let table: Table = tables::load("raw_requests.toml");
    let bytes = |text: &String| bytes_of(text, token);
    let reply = |row: &ReplyRow| Reply {
        parts: row.parts.iter().map(bytes).collect(),
        close: row.close,
        before_body: row.before_body,
    };
    let case = |row: &Row| {
        let client = row.client.iter().map(bytes);
        Case {
            name: row.why.clone(),
            client: client.chain([LAST.to_vec()]).collect(),
            service: row.service.iter().map(reply).collect(),
        }
    };
    table.row.iter().map(case).collect()
}

fn bytes_of(text: &str, token: &str) -> Vec<u8> {
    let filled = template::fill(text, |name| (name == "token").then(|| token.into()));
    let filled = String::from_utf8(filled).unwrap();
    filled
        .chars()
        .map(|byte| u8::try_from(byte).unwrap())
        .collect()
}
