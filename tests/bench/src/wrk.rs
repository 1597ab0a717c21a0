//! `wrk`, the load generator of the closed loops.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ::tests::actors::process::CommandLine;

/// Script that sends each token of a file once, in order, and stops at its end.
const SCRIPT: &str = r#"
local requests, sent = {}, 0
function init(arguments)
   for token in io.lines(arguments[1]) do
      requests[#requests + 1] = "GET " .. wrk.path .. " HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " .. token .. "\r\n\r\n"
   end
end
function request()
   sent = sent + 1
   if sent >= #requests then wrk.thread:stop() end
   return requests[math.min(sent, #requests)]
end
"#;

/// Script that sends the same request with a body of as many bytes as its argument says.
const UPLOAD: &str = r#"
function init(arguments)
   wrk.method = "POST"
   wrk.body = string.rep("x", tonumber(arguments[1]))
end
"#;

/// Number of fields that every request has: `Host` and `Authorization`.
pub const USUAL_FIELDS: usize = 2;

/// Requests of a closed loop.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// True if the contestant serves TLS.
    pub tls: bool,
    /// Path of every request.
    pub path: &'a str,
    /// Connections that are open at once.
    pub connections: usize,
    /// Duration of the load.
    pub length: Duration,
    /// Tokens of the requests.
    pub tokens: Tokens<'a>,
    /// Size of the body; without one the requests are GETs. Only with [`Tokens::One`].
    pub body: Option<usize>,
    /// Number of header fields. Only with [`Tokens::One`].
    pub fields: usize,
}

/// Tokens of the requests.
#[derive(Debug, Clone, Copy)]
pub enum Tokens<'a> {
    /// The same token each time.
    One(&'a str),
    /// Each line of this file once.
    Each(&'a Path),
}

/// Results of `wrk`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Requests with a response.
    pub requests: u64,
    /// Requests with a status other than 2xx and 3xx.
    pub rejected: u64,
    /// Requests a second.
    pub rate: f64,
    /// Median latency in microseconds.
    pub p50: f64,
}

/// Sends requests in a closed loop.
///
/// # Panics
/// When `wrk` fails, or a connection does.
pub fn run(address: SocketAddr, load: &Load<'_>) -> Seen {
    let script = tempfile::Builder::new()
        .suffix(".lua")
        .tempfile()
        .expect("a temporary file");
    let finished = command(address, load, script.path()).run();
    let seen = parse(&finished.stdout);
    let trouble = finished.stdout.contains("Socket errors");
    match seen {
        Some(seen) if finished.code == Some(0) && !trouble => seen,
        _ => panic!("wrk: {}{}", finished.stdout, finished.stderr),
    }
}

/// Returns the command line; writes the script that it names.
fn command(address: SocketAddr, load: &Load<'_>, script: &Path) -> CommandLine {
    let seconds = load.length.as_secs().max(1);
    let command = CommandLine::new("wrk").arguments([
        "--threads=1".to_owned(),
        format!("--connections={}", load.connections),
        format!("--duration={seconds}s"),
        "--latency".to_owned(),
    ]);
    let scheme = if load.tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}{}", load.path);
    let with_script = |command: CommandLine, text: &str, argument: String| {
        std::fs::write(script, text).expect("the script is written");
        let script = script.display().to_string();
        command.arguments([
            "--script".to_owned(),
            script,
            url.clone(),
            "--".to_owned(),
            argument,
        ])
    };
    let token = match load.tokens {
        Tokens::One(token) => token,
        Tokens::Each(file) => return with_script(command, SCRIPT, file.display().to_string()),
    };
    let more = (USUAL_FIELDS..load.fields).map(|n| format!("--header=X-Field-{n}: a plain value"));
    let command = command
        .arguments([format!("--header=Authorization: Bearer {token}")])
        .arguments(more);
    match load.body {
        Some(size) => with_script(command, UPLOAD, size.to_string()),
        None => command.arguments([url]),
    }
}

fn parse(output: &str) -> Option<Seen> {
    let after = |prefix: &str| {
        let lines = output.lines().map(str::trim);
        lines
            .filter_map(|line| line.strip_prefix(prefix))
            .map(str::trim)
            .next()
    };
    let requests = output
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))?;
    Some(Seen {
        requests: requests.0.parse().ok()?,
        rejected: after("Non-2xx or 3xx responses:").map_or(Some(0), |count| count.parse().ok())?,
        rate: after("Requests/sec:")?.parse().ok()?,
        p50: microseconds(after("50%")?)?,
    })
}

/// Parses `138.00us`, `1.20ms` or `2.00s`.
fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    units.into_iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor)
    })
}
