//! The settings of `dev`.

use std::net::SocketAddr;

use clap::Args;
use postern_http::path::patterns::ContextPath;
use postern_process::command_line;
use postern_process::command_line::seconds::{Seconds, within};
use postern_process::exit::ExitError;
use postern_transport::net::listener::ip_address_and_port;

use super::{Cli, Command, ServeArgs};

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Loopback address to serve on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000", value_parser = ip_address_and_port)]
    pub(crate) listen: SocketAddr,
    /// Address for probes, metrics and the status page; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9001", value_parser = ip_address_and_port)]
    pub(crate) admin_listen: SocketAddr,
    /// Path in front of every route; may be empty
    #[arg(long, value_name = "PATH", default_value = "/auth")]
    pub(crate) context_path: ContextPath,
    /// The tokens' `iss` claim [default: the address of this server, which can be discovered]
    #[arg(long, value_name = "NAME")]
    pub(crate) issuer: Option<String>,
    /// The tokens' `aud` claim; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = command_line::member::<String>)]
    pub(crate) audience: Vec<String>,
    /// Time that a token is valid, unless its request sets another
    #[arg(long, value_name = "DURATION",
          default_value_t = Seconds::new(3600), value_parser = within(1..=31_536_000))]
    pub(crate) token_lifetime: Seconds,
    /// Time that a key signs until a fresh one takes its place, to see what a rotation does; 0: always
    #[arg(long, value_name = "DURATION", default_value_t = Seconds::new(0))]
    pub(crate) rotate_every: Seconds,
    /// Lowest level of log lines: error, warn, info, debug, or a filter as of RUST_LOG
    #[arg(long, value_name = "FILTER", default_value = "error")]
    pub(crate) log_level: String,
}

impl DevArgs {
    /// Returns the address of the routes, for a server that listens on `address`.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        format!("http://{address}{}", self.context_path.as_str())
    }

    /// Returns the settings of `serve` that make a server for development: nothing is kept, and a pair
    /// is there at once.
    ///
    /// # Errors
    /// The errors of the command line.
    pub(crate) fn as_serve(&self, address: SocketAddr) -> Result<Box<ServeArgs>, ExitError> {
        let issuer = self.issuer.clone().unwrap_or_else(|| self.url(address));
        let audience = self.audience.iter();
        // A sidecar that meets the next key before its minute fetches it at once.
        let words = "auth-server serve --store=memory --signing-type=ecdsa --rotation-lead=1s --registry=none"
            .split(' ')
            .map(str::to_owned)
            .chain([
                format!("--listen={address}"),
                format!("--admin-listen={}", self.admin_listen),
                format!("--context-path={}", self.context_path),
                format!("--issuer={issuer}"),
                format!("--log-level={}", self.log_level),
                format!("--token-lifetime={}", self.token_lifetime),
                format!("--rotate-every={}", self.rotate_every),
            ])
            .chain(audience.map(|audience| format!("--audience={audience}")));
        match command_line::parse_words::<Cli>(words)?.command {
            // An environment with the settings of another server must neither register this one nor let a
            // page of its origins get tokens.
            Command::Serve(mut args) => {
                args.pages.cors_origin.clear();
                Ok(args)
            }
            _ => Err(ExitError::Software("dev is no serve".to_owned())),
        }
    }
}
