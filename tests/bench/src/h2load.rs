//! `h2load`, the load generator of HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use ::tests::actors::process::CommandLine;

const CONNECTIONS: usize = 8;
const STREAMS: usize = 10;

/// Sends GETs with `token` in a closed loop, and returns the number of responses.
///
/// # Panics
/// When `h2load` fails, or a request does.
pub fn run(address: SocketAddr, path: &str, token: &str, length: Duration) -> u64 {
    let finished = CommandLine::new("h2load")
        .arguments([
            format!("--clients={CONNECTIONS}"),
            format!("--max-concurrent-streams={STREAMS}"),
            format!("--duration={}", length.as_secs().max(1)),
            format!("--header=authorization: Bearer {token}"),
            format!("http://{address}{path}"),
        ])
        .run();
    match parse(&finished.stdout) {
        Some((requests, 0)) if finished.code == Some(0) => requests,
        _ => panic!("h2load: {}{}", finished.stdout, finished.stderr),
    }
}

/// Returns the counts of 2xx, and of all that went wrong.
fn parse(output: &str) -> Option<(u64, u64)> {
    let count = |line: &str, what: &str| {
        let line = output.lines().find_map(|one| one.strip_prefix(line))?;
        let count = line
            .split(',')
            .find_map(|part| part.trim().strip_suffix(what))?;
        count.parse::<u64>().ok()
    };
    let codes = |class| count("status codes: ", class);
    let failed = count("requests: ", " failed")?;
    Some((codes(" 2xx")?, failed + codes(" 4xx")? + codes(" 5xx")?))
}
