//! The settings of a key store: every file they name is read here.

use std::path::Path;

use process::exit::Failure;
use process::secret_file;
use process::tls::{CertificateFiles, trusted};
use zeroize::Zeroizing;

use crate::cli::store::{EncryptionArgs, Secret, StoreArgs};
use crate::keys::store::encryption::{KeyEncryption, KeyEncryptionKey};
use crate::keys::store::location::{ClientCertificate, StoreAccess, StoreLocation};

/// The store of any command.
///
/// # Errors
/// [`Failure::Config`] naming the flag, for an address that is none and for files that cannot be used.
pub(crate) fn store_location(args: &StoreArgs) -> Result<StoreLocation, Failure> {
    let access = StoreAccess {
        password: secret("--store-password-file", args.store_password_file.as_deref())?,
        ca: args.store_ca.as_deref().map(authorities).transpose()?,
        client: client_certificate(args)?,
        sentinel_user: args.store_sentinel_user.clone(),
        sentinel_password: secret(
            "--store-sentinel-password-file",
            args.store_sentinel_password_file.as_deref(),
        )?,
        encryption: encryption(&args.encryption)?,
    };
    StoreLocation::parse(&args.store, access).map_err(|error| refused("--store", &error))
}

fn secret(flag: &str, file: Option<&Path>) -> Result<Option<Zeroizing<String>>, Failure> {
    file.map(secret_file::read)
        .transpose()
        .map_err(|error| refused(flag, &error))
}

fn authorities(file: &Path) -> Result<Vec<u8>, Failure> {
    trusted(file).map_err(|fault| refused("--store-ca", &fault))
}

/// Found right as a pair, as a server would show it.
fn client_certificate(args: &StoreArgs) -> Result<Option<ClientCertificate>, Failure> {
    let (Some(cert), Some(key)) = (&args.store_client_cert, &args.store_client_key) else {
        return Ok(None);
    };
    let files = CertificateFiles::read(cert, key).map_err(|fault| {
        let flag = if fault.path() == key {
            "--store-client-key"
        } else {
            "--store-client-cert"
        };
        refused(flag, &fault)
    })?;
    Ok(Some(ClientCertificate {
        chain: files.chain,
        key: files.key,
    }))
}

fn encryption(args: &EncryptionArgs) -> Result<KeyEncryption, Failure> {
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
        return Err(refused(
            "--require-encrypted-keys",
            &"needs a key-encryption key: --key-encryption-key-file",
        ));
    }
    Ok(encryption)
}

fn encryption_key(
    flag: &str,
    value: Option<&Secret>,
    file: Option<&Path>,
) -> Result<Option<KeyEncryptionKey>, Failure> {
    let file_flag = format!("{flag}-file");
    let (flag, text) = match value {
        Some(Secret(text)) => (flag, Some(text.clone())),
        None => (file_flag.as_str(), secret(&file_flag, file)?),
    };
    text.map(|text| KeyEncryptionKey::parse(&text))
        .transpose()
        .map_err(|error| refused(flag, &error))
}

fn refused(flag: &str, cause: &dyn std::fmt::Display) -> Failure {
    Failure::Config(format!("{flag}: {cause}"))
}
