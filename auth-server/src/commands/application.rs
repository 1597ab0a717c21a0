//! `application add` and `application list`: they act on the store while servers run, which take it
//! over at their next look.

use process::exit::Failure;

use super::{print, store_failure};
use crate::applications::secret_hash::SecretHashes;
use crate::cli::{ApplicationAddArgs, ApplicationCommand, StoreArgs};
use crate::config::store_location;
use crate::keys::store::within_timeout;
use crate::random;

pub(crate) async fn run(command: &ApplicationCommand) -> Result<(), Failure> {
    match command {
        ApplicationCommand::Add(args) => add(args).await,
        ApplicationCommand::List(args) => list(args).await,
    }
}

async fn add(args: &ApplicationAddArgs) -> Result<(), Failure> {
    let location = store_location(&args.store)?;
    let secret =
        random::secret().map_err(|_| Failure::Software("no randomness for a secret".to_owned()))?;
    let hashes = SecretHashes::of(&secret);
    let added = within_timeout(location.open().add_application(&args.app_id, &hashes)).await;
    if added.map_err(store_failure)? {
        print(&secret)
    } else {
        Err(Failure::Usage(format!(
            "--app-id {}: this application is registered in {location} already",
            args.app_id
        )))
    }
}

async fn list(args: &StoreArgs) -> Result<(), Failure> {
    let applications = within_timeout(store_location(args)?.open().applications())
        .await
        .map_err(store_failure)?;
    for (id, secrets) in applications.iter() {
        print(&format!("{id}\t{} valid secret(s)", secrets.len()))?;
    }
    Ok(())
}
