//! Bounds on times, numbers and memory, and the times of a shutdown.

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args};
use postern_process::command_line::seconds::{Seconds, at_least_one, within};
use serde::Serialize;

/// Bounds on times, numbers and memory.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Limits")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct LimitArgs {
    /// Close WebSockets, event streams and gRPC calls when the token that opened them expires
    ///
    /// Off: uploads without a length, however slow, have no end either
    #[arg(long, env, default_value_t = true, action = ArgAction::Set)]
    pub(crate) close_streams_on_expiry: bool,

    /// Time for connecting to the service
    #[arg(long, env, default_value_t = Seconds::new(2), value_parser = at_least_one, value_name = "DURATION")]
    pub(crate) upstream_connect_timeout: Seconds,

    /// Time until the head of the response, and between its parts; 0: forever
    ///
    /// WebSockets, gRPC calls and event streams are exempt once their response has begun, if the
    /// request brought a token
    #[arg(long, env, default_value_t = Seconds::new(60), value_name = "DURATION")]
    pub(crate) upstream_read_timeout: Seconds,

    /// Time from the first byte of a request to the end of its header, at most 59s
    ///
    /// A new connection may be silent for as long
    #[arg(long, env, default_value_t = Seconds::new(10), value_parser = within(1..=59), value_name = "DURATION")]
    pub(crate) request_header_timeout: Seconds,

    /// Time a client may be silent within the body of its request; 0: forever
    ///
    /// Chunk extensions and trailers are silence too. WebSockets, and gRPC calls that brought a
    /// token, are exempt until their response ends; before it begins, --upstream-read-timeout bounds
    /// their silence
    #[arg(long, env, default_value_t = Seconds::new(60), value_name = "DURATION")]
    pub(crate) request_body_timeout: Seconds,

    /// Time a client may read nothing of what is sent to it; 0: forever
    ///
    /// Then its connection is closed
    #[arg(long, env, default_value_t = Seconds::new(60), value_name = "DURATION")]
    pub(crate) downstream_write_timeout: Seconds,

    /// Max. connections of clients at once; more are closed
    ///
    /// Default: half of the file descriptors that the process may have, less a few, and at most
    /// 16384
    #[arg(long, env, value_parser = at_least(1), value_name = "COUNT")]
    pub(crate) max_connections: Option<usize>,

    /// Max. requests at once on their way to the service and back; more get 503 server_busy
    ///
    /// Over all connections. Four fifths of them at most for one user, or one address without a
    /// token. Default: as for --max-connections
    #[arg(long, env, value_parser = at_least(1), value_name = "COUNT")]
    pub(crate) max_requests: Option<usize>,

    /// Threads that serve requests
    #[arg(long, env, default_value_t = 1, value_parser = at_least(1).range(..=MAX_THREADS), value_name = "COUNT")]
    pub(crate) threads: usize,
}

/// The steps from SIGTERM to the end.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Stop")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct StopArgs {
    /// Time to go on accepting after SIGTERM while reporting not ready; 5s in the image
    ///
    /// As long as what routes to this program takes to follow /readyz
    #[arg(long, env, default_value_t = Seconds::new(0), value_name = "DURATION")]
    pub(crate) lame_duck: Seconds,

    /// Time after that for requests in flight to finish
    #[arg(long, env, default_value_t = Seconds::new(20), value_name = "DURATION")]
    pub(crate) drain_timeout: Seconds,
}

/// Each thread has its own memory and connection pool; past this it is a typing mistake.
const MAX_THREADS: u64 = 1024;

fn at_least(count: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(count..)
}
