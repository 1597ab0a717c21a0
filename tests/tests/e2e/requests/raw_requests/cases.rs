//! The cases: a row each.

use serde::Deserialize;
use tests::tables;
use tests::tables::template::fill_bytes;

/// The last request of each case, so that the sidecar closes the connection.
const LAST: &[u8] = b"GET /orders/public/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// The response to a request without one in the case.
const USUAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

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
    service: Vec<Reply>,
    why: String,
}

/// The bytes of a client, and the response of the service.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) client: Vec<Vec<u8>>,
    pub(super) service: Vec<Reply>,
}

/// One response of the service, in parts.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reply {
    parts: Vec<String>,
    /// True if the connection closes behind it.
    #[serde(default)]
    pub(super) close: bool,
    /// True if it is sent before the body of the request is read.
    #[serde(default)]
    pub(super) before_body: bool,
}

impl Reply {
    pub(super) fn parts(&self) -> impl Iterator<Item = Vec<u8>> {
        self.parts.iter().map(|part| fill_bytes(part, |_| None))
    }
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            parts: vec![USUAL.to_owned()],
            close: false,
            before_body: false,
        }
    }
}

/// Reads the table, with this valid token.
pub(super) fn cases(token: &str) -> Vec<Case> {
    let table: Table = tables::load("raw_requests.toml");
    let named = |name: &str| (name == "token").then(|| token.into());
    let case = |row: Row| {
        let client = row.client.iter().map(|text| fill_bytes(text, named));
        Case {
            name: row.why,
            client: client.chain([LAST.to_vec()]).collect(),
            service: row.service,
        }
    };
    table.row.into_iter().map(case).collect()
}
