//! The auth server as a source of verification keys, and the way to any source.

use http::uri::Scheme;
use runtime::files::secret_file;
use runtime::net::host_port::without_credentials;
use runtime::process::exit::ExitError;
use runtime::tls::peer::{PeerFiles, PeerSettings};
use secrecy::{ExposeSecret, SecretString};
use wire::keys::signing_type::SigningType;
use wire::settings;

use super::flag_value::flag_error;
use crate::cli::ServeArgs;
use crate::cli::revocation_args::{RevocationArgs, RevocationMode};
use crate::discovery::AuthServer;
use crate::issuers::RevocationSettings;
use crate::issuers::source::SourceSettings;
use crate::issuers::source::auth_server::{Application, EndpointSettings};

/// Warns of a proxy in the environment, which is not used: a proxy could replace the keys. `is_set`
/// reads a variable.
pub(super) fn ignored_proxy(
    source: &SourceSettings,
    is_set: impl Fn(&str) -> bool,
) -> Option<String> {
    const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let SourceSettings::KeySet(settings) = source else {
        return None;
    };
    let is_direct = settings.location.first().is_https() && settings.proxy.is_none();
    let named = VARIABLES.into_iter().find(|name| is_set(name))?;
    is_direct.then(|| {
        format!("{named} is set, and not used: keys are fetched through the `keys-proxy` of an [[issuer]] only, or directly")
    })
}

/// Returns the auth server of the flags.
///
/// # Errors
/// [`ExitError::Config`] that names a flag.
pub(super) fn endpoint(args: &ServeArgs) -> Result<EndpointSettings, ExitError> {
    let url = args.keys.auth_server.as_deref().unwrap_or_default();
    let auth_server = url
        .parse::<AuthServer>()
        .map_err(|error| flag_error("auth-server", without_credentials(url), error))?
        .with_registry()?;
    let tls = tls_files(args);
    if let Some(flag) = unused(&tls, Some(auth_server.scheme())) {
        return Err(without_tls(flag));
    }
    Ok(EndpointSettings {
        tls,
        auth_server,
        application: application(args)?,
        signing_type: signing_type(args)?,
        wants_list: revocations(&args.revocations).is_some(),
    })
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

/// Returns the flag of a certificate that has no effect with `scheme`, or with a file of keys.
pub(super) fn unused(files: &PeerFiles, scheme: Option<&Scheme>) -> Option<&'static str> {
    let flag = match files.ca {
        Some(_) => "auth-ca",
        None => "auth-client-cert",
    };
    (!files.is_empty() && scheme != Some(&Scheme::HTTPS)).then_some(flag)
}

pub(super) fn without_tls(flag: &str) -> ExitError {
    ExitError::Config(format!("--{flag}: has an effect only with https"))
}

/// Returns the use of the auth server's revocation list.
pub(super) fn revocations(args: &RevocationArgs) -> Option<RevocationSettings> {
    let required = match args.revocations? {
        RevocationMode::Off => return None,
        RevocationMode::On => None,
        RevocationMode::Required => Some(args.max_revocation_age.duration()),
    };
    Some(RevocationSettings {
        required,
        poll: args.revocation_poll.limit(),
    })
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
    let id = app_id(args)?;
    let secret = secret(args)?;
    if secret.expose_secret().is_empty() {
        return Err(ExitError::Config("--app-secret: is empty".to_owned()));
    }
    Ok(Application { id, secret })
}

fn app_id(args: &ServeArgs) -> Result<String, ExitError> {
    let id = args.keys.app_id.clone();
    id.as_deref()
        .map_or(Ok(()), settings::app_id)
        .map_err(|why| flag_error("app-id", "", why))?;
    Ok(id.unwrap_or_default())
}

fn secret(args: &ServeArgs) -> Result<SecretString, ExitError> {
    match (&args.keys.app_secret, &args.keys.app_secret_file) {
        (Some(secret), None) => Ok(secret.clone()),
        (None, Some(file)) => secret_file::read(file)
            .map(|text| SecretString::from(text.as_str()))
            .map_err(|error| flag_error("app-secret-file", file.display(), error)),
        (None, None) => Err(ExitError::Config(
            "--app-secret or --app-secret-file is required".to_owned(),
        )),
        (Some(_), Some(_)) => Err(ExitError::Config(
            "--app-secret and --app-secret-file exclude each other".to_owned(),
        )),
    }
}
