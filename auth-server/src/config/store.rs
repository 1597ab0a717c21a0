//! Settings of a key store; every named file is read at once.

use std::path::Path;

use runtime::files::secret_file;
use runtime::process::exit::ExitError;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::cli::store::{EncryptionArgs, StoreArgs};
use crate::keys::location::StoreLocation;
use crate::store::envelope_encryption::{KeyEncryption, KeyEncryptionKey};
use crate::store::redis::credentials::{CredentialFiles, Credentials};

/// Validates the store flags of a command.
///
/// # Errors
/// [`ExitError::Config`] that names the flag, for an invalid address or an unusable file.
pub(crate) fn store_location(args: &StoreArgs) -> Result<StoreLocation, ExitError> {
    let access = Credentials::read(access_files(args))
        .map_err(|error| ExitError::Config(error.to_string()))?;
    StoreLocation::parse(&args.store, access, encryption(&args.encryption)?)
        .map_err(|error| rejected("--store", &error))
}

fn access_files(args: &StoreArgs) -> CredentialFiles {
    CredentialFiles {
        password: args.store_password_file.clone(),
        ca: args.store_ca.clone(),
        client: args
            .store_client_cert
            .clone()
            .zip(args.store_client_key.clone()),
        sentinel_user: args.store_sentinel_user.clone(),
        sentinel_password: args.store_sentinel_password_file.clone(),
    }
}

fn secret(flag: &str, file: Option<&Path>) -> Result<Option<Zeroizing<String>>, ExitError> {
    file.map(secret_file::read)
        .transpose()
        .map_err(|error| rejected(flag, &error))
}

fn encryption(args: &EncryptionArgs) -> Result<KeyEncryption, ExitError> {
    let encryption = KeyEncryption {
        current: encryption_key(
            "--key-encryption-key",
            args.key_encryption_key.as_ref(),
            args.key_encryption_key_file.as_deref(),
        )?,
        previous: encryption_key(
            "--key-encryption-key-previous",
            args.key_encryption_key_previous.as_ref(),
            args.key_encryption_key_previous_file.as_deref(),
        )?,
        required: args.require_encrypted_keys,
    };
    if encryption.required && encryption.current.is_none() {
        return Err(rejected(
            "--require-encrypted-keys",
            &"needs a key-encryption key: --key-encryption-key-file",
        ));
    }
    Ok(encryption)
}

fn encryption_key(
    flag: &str,
    value: Option<&SecretString>,
    file: Option<&Path>,
) -> Result<Option<KeyEncryptionKey>, ExitError> {
    let file_flag = format!("{flag}-file");
    let (flag, key) = match value {
        Some(text) => (flag, Some(KeyEncryptionKey::parse(text.expose_secret()))),
        None => {
            let text = secret(&file_flag, file)?;
            let key = text.map(|text| KeyEncryptionKey::parse(&text));
            (file_flag.as_str(), key)
        }
    };
    key.transpose().map_err(|error| rejected(flag, &error))
}

fn rejected(flag: &str, cause: &dyn std::fmt::Display) -> ExitError {
    ExitError::Config(format!("{flag}: {cause}"))
}
