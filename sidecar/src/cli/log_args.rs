//! The access log, and the ids by which the lines of a request are found.

use clap::Args;
use postern_process::command_line::serialize::{each_displayed, word};
use postern_transport::net::client_address::{IpNet, parse_network};
use serde::Serialize;

use crate::telemetry::access_log::{AccessLog, LoggedUser};

/// Ids of requests, the choice of those that get a line, and the address it names.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Logs")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct AccessLogArgs {
    /// Give each request an id (X-Request-Id), unless it brings one
    ///
    /// For the service, the response and the log
    #[arg(long, env)]
    pub(crate) request_id: bool,

    /// Requests that get a log line
    #[arg(long, env, value_enum, default_value_t = AccessLog::Rejections, value_name = "WHICH")]
    #[serde(serialize_with = "word")]
    pub(crate) access_log: AccessLog,

    /// Name of the user in the line of a forwarded request: the id or the account of the token
    #[arg(long, env, value_enum, default_value_t = LoggedUser::Off, value_name = "NAME")]
    #[serde(serialize_with = "word")]
    pub(crate) access_log_user: LoggedUser,

    /// Network of proxies in front, such as 10.0.0.0/8; repeatable
    ///
    /// Their X-Forwarded-For is trusted when a log line names the client and when requests without a
    /// token share permits, their connections are of many clients and give way last, and their
    /// X-Original-URL and other fields with a path reach the service
    #[arg(long, env, value_name = "CIDR", value_delimiter = ',', value_parser = parse_network)]
    #[serde(serialize_with = "each_displayed")]
    pub(crate) trusted_proxy: Vec<IpNet>,
}
