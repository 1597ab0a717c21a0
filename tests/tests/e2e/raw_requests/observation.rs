//! Observations of a case through one program: at the service, at the client, in metrics and in the log.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tests::auth_server::admin_get;
use tests::wait;

use super::Side;
use super::cases::Case;
use super::service::{Seen, name_of, split};

/// Longer than the timeouts of the sidecars together.
const SILENCE: Duration = Duration::from_secs(6);

/// Behind a body whose end did not arrive.
const UNFINISHED: &str = " without its end";

/// Metrics that count the same with both programs.
const COUNTED: [&str; 7] = [
    "postern_sidecar_requests_total",
    "postern_sidecar_upstream_errors_total",
    "postern_sidecar_auth_duration_seconds_count",
    "postern_sidecar_upstream_duration_seconds_count",
    "postern_sidecar_streams_expired_total",
    "postern_sidecar_token_cache_hits_total",
    "postern_sidecar_token_cache_misses_total",
];
/// Members of a log record that are the same.
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

impl Received {
    fn is_interim(&self) -> bool {
        let first_line = self.head.first();
        first_line.is_some_and(|line| line.starts_with("HTTP/1.1 1"))
    }
}

impl Observation {
    /// Returns the observation as data that does not depend on the `token`.
    pub(super) fn record(&self, token: &str) -> Value {
        let text = serde_json::to_string(self).unwrap();
        serde_json::from_str(&text.replace(token, "{{token}}")).unwrap()
    }

    /// Returns true if a response of the service was rejected.
    pub(super) fn rejects_response(&self) -> bool {
        self.log
            .iter()
            .any(|line| line.contains("upstream_malformed"))
    }

    /// Returns true if a response ended in the middle because its chunks are malformed.
    pub(super) fn breaks_off(&self) -> bool {
        let late =
            |line: &String| line.contains("upstream_malformed") && !line.contains("status=502");
        self.log.iter().any(late)
    }

    /// Returns the parts that differ from those of the other program, apart from what ADR 0045 allows.
    pub(super) fn difference(&self, former: &Self) -> Option<String> {
        // Pingora's proxy may drop interim responses before a response that it rejects.
        let without_interim = |responses: &[Received]| {
            let mut responses = responses.to_vec();
            responses.retain(|response| !response.is_interim() || !self.rejects_response());
            responses
        };
        let (mut received, by_pingora) = (
            without_interim(&self.received),
            without_interim(&former.received),
        );
        if received.len() > by_pingora.len() {
            // It also keeps the begin of a response back until there is more of it.
            let _ = received.pop_if(|last| last.body.ends_with(UNFINISHED));
        }
        let client = part("client", &received, &by_pingora);
        let parts = [
            part("service", &requests(&self.seen), &requests(&former.seen)),
            part("reuse", &reused_more(&self.seen, &former.seen), &false),
            client,
            part("closed", &self.closed, &former.closed),
            part("metrics", &self.counts, &former.counts),
            part("log", &self.log, &former.log),
        ];
        let compared = if self.rejects_what_is_escaped(former) {
            // Pingora escapes a control byte, and a filter rejects the path.
            0
        } else if self.rejects_head() && former.names_no_reason() {
            // Pingora rejects two lengths, other codings, two hosts and some of CONNECT before a
            // filter can name reason, method and path.
            2
        } else if former.has_no_response() {
            // Pingora's proxy closes the connection of an event stream that does not begin.
            2
        } else if former.rejects_request_late() {
            // After an early response, it waits for the rest of the request.
            4
        } else {
            6
        };
        let differing: Vec<_> = parts.into_iter().take(compared).flatten().collect();
        (!differing.is_empty()).then(|| differing.join("\n"))
    }

    /// Returns true if the last request is no HTTP here, and has no canonical path on the other side.
    fn rejects_what_is_escaped(&self, former: &Self) -> bool {
        let last = self.log.len().checked_sub(1);
        let theirs = last.and_then(|last| former.log.get(last));
        self.names_no_reason() && theirs.is_some_and(|line| line.contains("path_not_canonical"))
    }

    /// Returns true if the last request was rejected for its framing, its hosts or its method.
    fn rejects_head(&self) -> bool {
        let rejected = [
            "reason=\"request_framing\" status=400",
            "reason=\"request_malformed\" status=400",
            "reason=\"method_not_allowed\" status=405",
        ];
        let last = self.log.last();
        last.is_some_and(|line| rejected.iter().any(|one| line.contains(one)))
    }

    /// Returns true if the last request was rejected as no HTTP.
    fn names_no_reason(&self) -> bool {
        let last = self.log.last();
        last.is_some_and(|line| line.contains("reason=\"request_malformed\" status=400"))
    }

    /// Returns true if a timeout of the service ended the last request without a response.
    fn has_no_response(&self) -> bool {
        let is_silent = |line: &String| {
            line.contains("upstream_timeout")
                && (self.received.is_empty() || line.contains("status=null"))
        };
        self.log.last().is_some_and(is_silent)
    }

    /// Returns true if a request was rejected after the response of the service.
    fn rejects_request_late(&self) -> bool {
        self.log.iter().any(|line| {
            line.contains("reason=\"request_timeout\"") && !line.contains("status=408")
                || line.contains("reason=\"request_framing\"") && !line.contains("status=400")
        })
    }
}

/// Returns the difference of one part.
fn part<T: std::fmt::Debug + PartialEq>(name: &str, present: &T, former: &T) -> Option<String> {
    (present != former)
        .then(|| format!("  {name}\n    present: {present:?}\n    former:  {former:?}"))
}

/// Returns the whole requests without their connections: of one that is rejected within its body,
/// the head may be sent.
fn requests(seen: &[Seen]) -> Vec<Seen> {
    let request = |seen: &Seen| Seen {
        connection: 0,
        ..seen.clone()
    };
    let is_whole = |seen: &&Seen| seen.body.is_some();
    seen.iter().filter(is_whole).map(request).collect()
}

/// Returns true if a request went over a used connection that Pingora's proxy did not use again.
fn reused_more(present: &[Seen], former: &[Seen]) -> bool {
    let reuses = |seen: &[Seen]| -> Vec<bool> {
        let connections: Vec<_> = seen.iter().map(|seen| seen.connection).collect();
        let is_used = |at: usize| connections[..at].contains(&connections[at]);
        (0..connections.len()).map(is_used).collect()
    };
    let (present, former) = (reuses(present), reuses(former));
    present
        .iter()
        .zip(&former)
        .any(|(present, former)| *present && !former)
}

/// Sends the case through one program.
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
        // Pingora repeats the version of the service.
        head.insert(0, first_line.replacen("HTTP/1.0", "HTTP/1.1", 1));
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
