//! `dev`: a server for development and tests on this machine, which signs any claims.

use std::io::Write;

use postern_http::host::loopback::is_loopback;
use postern_process::exit::ExitError;
use postern_process::signals::{Terminations, signal_error};
use postern_transport::net::listener::{self, Port};

use crate::cli::dev::DevArgs;
use crate::config::Config;
use crate::http::routes::{DEV_PAGE_PATH, DEV_TOKEN_PATH};
use crate::server;
use crate::store::directory::Access;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`ExitError::Config`] for an address that other machines reach; the errors of `serve`.
pub(crate) async fn run(args: &DevArgs) -> Result<(), ExitError> {
    if !is_loopback(args.listen.ip()) {
        return Err(ExitError::Config(format!(
            "--listen {}: dev signs any claims, so it serves on a loopback address only, \
             such as 127.0.0.1:9000; auth-server serve is for other machines",
            args.listen
        )));
    }
    let listener = listener::bind(Port::Public, args.listen)?;
    let address = listener::address(&listener)?;
    let settings = args.as_serve(address)?;
    let config = Config {
        any_claims: true,
        ..Config::from_args(&settings)?
    };
    let terminations = Terminations::install().map_err(signal_error)?;
    // A closed standard output does not matter.
    let welcome = welcome(&args.url(address), &args.audience);
    let _ = std::io::stdout().write_all(welcome.as_bytes());
    let store = config.store.open(Access::Serve)?;
    server::serve_on(listener, &settings, config, store, None, terminations).await
}

/// Returns the text from which a developer copies address and commands.
fn welcome(url: &str, audience: &[String]) -> String {
    let audience = match audience {
        [] => String::new(),
        names => format!(" --audience {}", names.join(",")),
    };
    format!(
        r#"
  ********************************************************************************
  *  FOR DEVELOPMENT AND TESTS ONLY: every program on this machine gets a token  *
  *  with any claims. Keys and sessions are in memory and end with this server.  *
  ********************************************************************************

  A token     curl -s {url}{DEV_TOKEN_PATH} -d '{{"username": "ada", "roles": ["admin"], "extraInfo": {{"tenantId": "t1"}}, "lifetime": 600}}'
  By hand     {url}{DEV_PAGE_PATH}
  A sidecar   sidecar serve --auth-server {url} --signing-type ecdsa --app-id dev --app-secret dev{audience} --upstream http://127.0.0.1:3000

"#
    )
}
