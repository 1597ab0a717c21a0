//! Observations of a case: at the service, at the client, in metrics and in the log.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tests::actors::auth_server::admin_get;
use tests::wait;

use super::Side;
use super::cases::Case;
use super::service::{Seen, name_of, split};

/// Longer than the timeouts of the sidecars together.
const SILENCE: Duration = Duration::from_secs(6);

/// Behind a body whose end did not arrive.
const UNFINISHED: &str = " without its end";

/// Metrics that are recorded.
const COUNTED: [&str; 7] = [
    "postern_sidecar_requests_total",
    "postern_sidecar_upstream_errors_total",
    "postern_sidecar_auth_duration_seconds_count",
    "postern_sidecar_upstream_duration_seconds_count",
    "postern_sidecar_streams_expired_total",
    "postern_sidecar_token_cache_hits_total",
    "postern_sidecar_token_cache_misses_total",
];
/// Members of a log record that are recorded.
const LOGGED: [&str; 6] = ["outcome", "reason", "status", "method", "path", "client"];

/// Everything that a case shows.
#[derive(Debug, Serialize)]
pub(super) struct Observation {
    seen: Vec<Seen>,
    received: Vec<Received>,
    /// True if the sidecar closed the connection.
    closed: bool,
    counts: BTreeMap<String, u64>,
    log: Vec<String>,
}

/// A response as the client received it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Received {
    /// The first line and the fields in the order of their names, without `Date`.
    head: Vec<String>,
    /// Without its framing.
    body: String,
}

impl Observation {
    /// Returns the observation as data that does not depend on the `token`.
    pub(super) fn record(&self, token: &str) -> Value {
        let text = serde_json::to_string(self).unwrap();
        serde_json::from_str(&text.replace(token, "{{token}}")).unwrap()
    }
}

/// Sends the case through the sidecar.
pub(super) fn observe(side: &Side, case: &Case, pause: Duration) -> Observation {
    let before = counts(side);
    let logged = log(side).len();
    side.service.play(&case.service);
    let (bytes, closed) = converse(side, case, pause);
    // The record of a request is its last step.
    wait::within(SILENCE, || {
        let metrics = admin_get(side.sidecar.admin(), "/metrics").text();
        let is_idle = |gauge: &str| metrics.contains(&format!("postern_sidecar_{gauge} 0\n"));
        is_idle("requests_in_flight") && is_idle("connections")
    });
    let mut counts = counts(side);
    for (name, count) in &mut counts {
        *count -= before.get(name).copied().unwrap_or_default();
    }
    counts.retain(|_, count| *count > 0);
    let requests = counts
        .iter()
        .filter(|(name, _)| name.starts_with(COUNTED[0]));
    let requests = usize::try_from(requests.map(|(_, count)| count).sum::<u64>()).unwrap();
    let log = wait::within(SILENCE, || {
        let log = log(side).split_off(logged);
        (log.len() >= requests).then_some(log)
    });
    Observation {
        seen: side.service.seen(),
        received: responses(&bytes),
        closed,
        counts,
        log: log.unwrap_or_default(),
    }
}

/// Returns the bytes that the client received, and true if the connection was closed.
fn converse(side: &Side, case: &Case, pause: Duration) -> (Vec<u8>, bool) {
    let mut writer = TcpStream::connect(side.sidecar.address()).unwrap();
    writer.set_nodelay(true).unwrap();
    writer.set_write_timeout(Some(SILENCE)).unwrap();
    writer.set_read_timeout(Some(SILENCE)).unwrap();
    let mut reader = writer.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for segment in &case.client {
                if writer.write_all(segment).is_err() {
                    break;
                }
                std::thread::sleep(pause);
            }
        });
        let mut bytes = Vec::new();
        let closed = match reader.read_to_end(&mut bytes) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        (bytes, closed)
    })
}

fn counts(side: &Side) -> BTreeMap<String, u64> {
    let metrics = admin_get(side.sidecar.admin(), "/metrics").text();
    let counted = |line: &&str| COUNTED.iter().any(|name| line.starts_with(name));
    let lines = metrics.lines().filter(counted);
    let sample = |line: &str| {
        let (name, count) = line.rsplit_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    lines.filter_map(sample).collect()
}

fn log(side: &Side) -> Vec<String> {
    let text = side.sidecar.process().stderr();
    let lines = text.lines().filter(|line| line.contains(r#""request""#));
    let record = |line: &str| {
        let record = serde_json::from_str::<Value>(line).ok()?;
        let member = |name: &&str| format!("{name}={}", record[*name]);
        Some(LOGGED.iter().map(member).collect::<Vec<_>>().join(" "))
    };
    lines.filter_map(record).collect()
}

/// Splits what a client received into responses.
fn responses(received: &[u8]) -> Vec<Received> {
    let mut rest = received;
    let mut responses = Vec::new();
    while let Some(end) = find(rest, b"\r\n\r\n") {
        let (bytes, after) = rest.split_at(end + 4);
        let (first_line, mut head) = split(bytes);
        head.retain(|field| name_of(field) != "date");
        let is_chunked = head
            .iter()
            .any(|field| name_of(field) == "transfer-encoding");
        let (body, after) = match first_line.split(' ').nth(1) {
            Some("204" | "304") => (Vec::new(), Some(after)),
            Some(status) if status.starts_with('1') => (Vec::new(), Some(after)),
            // The response before was to HEAD.
            _ if after.starts_with(b"HTTP/1.") => (Vec::new(), Some(after)),
            _ if is_chunked => chunks(after),
            _ => content(&head, after),
        };
        let end = if after.is_some() { "" } else { UNFINISHED };
        head.insert(0, first_line);
        responses.push(Received {
            head,
            body: format!("{}{end}", body.escape_ascii()),
        });
        rest = after.unwrap_or_default();
    }
    if !rest.is_empty() {
        responses.push(Received {
            head: Vec::new(),
            body: rest.escape_ascii().to_string(),
        });
    }
    responses
}

/// A body, and what follows it; `None` if it did not end.
type Body<'r> = (Vec<u8>, Option<&'r [u8]>);

fn content<'r>(fields: &[String], after: &'r [u8]) -> Body<'r> {
    let length = fields
        .iter()
        .find(|field| name_of(field) == "content-length");
    let length = length.and_then(|field| field.split_once(':')?.1.trim().parse::<usize>().ok());
    match after.split_at_checked(length.unwrap_or(after.len())) {
        Some((body, after)) => (body.to_vec(), Some(after)),
        None => (after.to_vec(), None),
    }
}

fn chunks(mut after: &[u8]) -> Body<'_> {
    let mut body = Vec::new();
    while let Some((data, rest)) = chunk(after) {
        body.extend_from_slice(data);
        after = rest;
        if data.is_empty() {
            return (body, Some(after));
        }
    }
    (body, None)
}

fn chunk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (line, rest) = bytes.split_at_checked(find(bytes, b"\r\n")?)?;
    let size = usize::from_str_radix(std::str::from_utf8(line).ok()?, 16).ok()?;
    let (data, rest) = rest.get(2..)?.split_at_checked(size)?;
    Some((data, rest.strip_prefix(b"\r\n")?))
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}
