//! `store …`: works on the store as a whole.

use runtime::process::exit::ExitError;

use super::print;
use crate::cli::store::StoreCommand;
use crate::config::store_location;

pub(crate) fn run(command: &StoreCommand) -> Result<(), ExitError> {
    let StoreCommand::Backup(args) = command;
    let location = store_location(&args.store)?;
    location.backup(&args.file)?;
    print(&format!("{location} is copied to {}", args.file.display()))
}
