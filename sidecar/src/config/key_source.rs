//! The auth server as a source of verification keys, and the way to any source.

use http::uri::Scheme;
use postern_contract::settings;
use postern_http::host::host_port::redacted;
use postern_process::exit::ExitError;
use postern_process::files::secret_file;
use postern_token::keys::signing_type::SigningType;
use postern_token::policy::Audience;
use postern_transport::tls::peer::PeerFiles;
use postern_transport::tls::peer_settings::PeerSettings;
use secrecy::{ExposeSecret, SecretString};

use super::flag_value::flag_error;
use crate::cli::ServeArgs;
use crate::cli::key_args::RevocationMode;
use crate::discovery::AuthServer;
use crate::issuers::source::auth_server::{Application, EndpointSettings};

/// Returns the auth server of the flags.
///
/// # Errors
/// [`ExitError::Config`] that names a flag.
pub(super) fn endpoint(args: &ServeArgs) -> Result<EndpointSettings, ExitError> {
    let url = args.keys.auth_server.as_deref().unwrap_or_default();
    let auth_server = parse("auth-server", url)?;
    Ok(EndpointSettings {
        tls: only_with_https(tls_files(args), *auth_server.scheme() == Scheme::HTTPS)?,
        auth_server,
        application: Some(application(args)?),
        signing_type: signing_type(args)?,
        wants_list: !matches!(args.keys.revocations, None | Some(RevocationMode::Off)),
    })
}

/// Returns the server of `--revocations-from`, the source of the revocation list; `None` without the flag.
///
/// # Errors
/// [`ExitError::Config`] that names a flag.
pub(super) fn list_server(args: &ServeArgs) -> Result<Option<EndpointSettings>, ExitError> {
    let Some(url) = args.keys.revocations_from.as_deref() else {
        return Ok(None);
    };
    let auth_server = parse("revocations-from", url)?;
    Ok(Some(EndpointSettings {
        // Without https the TLS files may be for an issuer alone.
        tls: if *auth_server.scheme() == Scheme::HTTPS {
            tls_files(args)
        } else {
            PeerFiles::default()
        },
        auth_server,
        application: None,
        signing_type: SigningType::default(),
        wants_list: true,
    }))
}

fn parse(flag: &str, url: &str) -> Result<AuthServer, ExitError> {
    url.parse::<AuthServer>()
        .map_err(|error| flag_error(flag, redacted(url), error))?
        .with_registry(flag)
}

/// Returns the certificates of the flags.
pub(super) fn tls_files(args: &ServeArgs) -> PeerFiles {
    let keys = &args.keys;
    PeerFiles {
        settings: PeerSettings {
            ca: "--auth-ca",
            certificate: "--auth-client-cert",
            key: "--auth-client-key",
        },
        ca: keys.auth_ca.clone(),
        identity: keys
            .auth_client_cert
            .clone()
            .zip(keys.auth_client_key.clone()),
    }
}

/// Returns the TLS files, which are rejected without https because they would have no effect.
///
/// # Errors
/// [`ExitError::Config`] with the setting of the first file.
pub(super) fn only_with_https(files: PeerFiles, is_https: bool) -> Result<PeerFiles, ExitError> {
    match files.first_setting() {
        Some(setting) if !is_https => Err(ExitError::Config(format!(
            "{setting}: has an effect only with https"
        ))),
        _ => Ok(files),
    }
}

fn signing_type(args: &ServeArgs) -> Result<SigningType, ExitError> {
    let signing_type = args.keys.signing_type.unwrap_or_default();
    if signing_type == SigningType::Hmac && !args.keys.trust_shared_secret {
        let why = "gives this sidecar the secret that issues tokens; \
                   allow that with --trust-shared-secret";
        return Err(flag_error("signing-type", signing_type, why));
    }
    Ok(signing_type)
}

fn application(args: &ServeArgs) -> Result<Application, ExitError> {
    let keys = &args.keys;
    let id = keys.app_id.clone().unwrap_or_default();
    settings::app_id(&id).map_err(|why| flag_error("app-id", &id, why))?;
    let secret = match (&keys.app_secret, &keys.app_secret_file) {
        (Some(secret), _) => secret.clone(),
        (None, Some(file)) => secret_file::read(file)
            .map(|text| SecretString::from(text.as_str()))
            .map_err(|error| ExitError::Config(format!("--app-secret-file: {error}")))?,
        (None, None) => "".into(),
    };
    // An empty variable counts as missing: the server would reject it only at each fetch.
    if secret.expose_secret().is_empty() {
        return Err(ExitError::Config(
            "--app-secret or --app-secret-file is required, and not empty".to_owned(),
        ));
    }
    Ok(Application {
        id,
        secret,
        audience: Audience::default(),
    })
}
