//! `keys show` and `keys export-public`.

use process::exit::Failure;

use super::{print, store_failure};
use crate::cli::{KeyArgs, KeysCommand};
use crate::config::store_location;
use crate::keys::key_pair::SigningKeyPair;
use crate::keys::store::{unusable_pair, within_timeout};

pub(crate) async fn run(command: &KeysCommand) -> Result<(), Failure> {
    match command {
        KeysCommand::Show(args) => {
            let pair = load(args).await?;
            print(&format!(
                "kid           {}\nsigning type  {}\nstore         {}",
                pair.id(),
                args.signing.signing_type,
                store_location(&args.store)?
            ))
        }
        KeysCommand::ExportPublic(args) => print(load(args).await?.public_key_string().trim_end()),
    }
}

async fn load(args: &KeyArgs) -> Result<SigningKeyPair, Failure> {
    let location = store_location(&args.store)?;
    let store = location.open();
    let stored = within_timeout(store.load()).await.map_err(store_failure)?;
    let stored = stored.ok_or_else(|| {
        Failure::Unavailable(format!(
            "{location} holds no key pair yet: the first start of auth-server serve makes it"
        ))
    })?;
    SigningKeyPair::parse(args.signing.signing_type, stored)
        .map_err(|fault| store_failure(unusable_pair(&*store, &fault)))
}
