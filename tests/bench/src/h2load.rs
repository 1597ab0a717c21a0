//! `h2load`, the load generator of HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use ::tests::process::CommandLine;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read() {
        let report = "\
finished in 1.00s, 61728.00 req/s, 5.31MB/s
requests: 61728 total, 61808 started, 61728 done, 61728 succeeded, 2 failed, 0 errored, 0 timeout
status codes: 61725 2xx, 0 3xx, 3 4xx, 0 5xx
";
        assert_eq!(parse(report), Some((61725, 5)));
        assert_eq!(parse("unable to connect"), None);
    }
}
