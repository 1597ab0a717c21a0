//! Settings of a key store; every named file is read at once.

use postern_process::exit::ExitError;
use postern_process::files::secret_file;
use secrecy::ExposeSecret;

use crate::cli::store::StoreArgs;
use crate::store::at_rest::KeyEncryption;
use crate::store::location::StoreLocation;
use crate::store::redis::credentials::Credentials;

/// Validates the store flags of a command.
///
/// # Errors
/// [`ExitError::Config`] that names the flag, for an invalid address or an unusable file.
pub(crate) fn store_location(args: &StoreArgs) -> Result<StoreLocation, ExitError> {
    let access = Credentials::read(args.access.clone()).map_err(ExitError::Config)?;
    StoreLocation::parse(&args.store, access, encryption(args)?)
        .map_err(|error| rejected("--store", &error))
}

fn encryption(args: &StoreArgs) -> Result<KeyEncryption, ExitError> {
    let (value, file) = (&args.key_encryption_key, &args.key_encryption_key_file);
    let (flag, keys) = match (value, file) {
        (Some(value), _) => (
            "--key-encryption-key",
            KeyEncryption::parse(value.expose_secret()),
        ),
        (None, Some(file)) => {
            let flag = "--key-encryption-key-file";
            let text = secret_file::read(file).map_err(|error| rejected(flag, &error))?;
            (flag, KeyEncryption::parse(&text))
        }
        (None, None) => ("", Ok(KeyEncryption::default())),
    };
    let encryption = KeyEncryption {
        required: args.require_encrypted_keys,
        ..keys.map_err(|error| rejected(flag, &error))?
    };
    // Without a key that encrypts, this server would write private values in plaintext.
    if encryption.required && encryption.current.is_none() {
        return Err(rejected(
            "--require-encrypted-keys",
            &"needs a key-encryption key: --key-encryption-key-file",
        ));
    }
    Ok(encryption)
}

fn rejected(flag: &str, cause: &dyn std::fmt::Display) -> ExitError {
    ExitError::Config(format!("{flag}: {cause}"))
}
