//! `application …`: changes the store while servers run, which apply it at their next poll.

use std::path::Path;

use postern_process::exit::ExitError;
use postern_process::files::secret_file;
use postern_process::output;
use serde_json::json;

use super::revoke::end_application;
use super::store::CommandStore;
use super::{ATTEMPTS, actor, no_randomness, print_note, print_row};
use crate::accounts::applications::AppId;
use crate::accounts::applications::command::Change;
use crate::accounts::applications::secret_hash::MIN_SECRET_LENGTH;
use crate::accounts::grants::{FurtherClaims, Grant};
use crate::cli::application::{ApplicationArgs, ApplicationCommand, GrantArgs};
use crate::cli::store::StoreArgs;
use crate::random;
use crate::store::StoreError;
use crate::telemetry::audit;

/// Max bytes of id and grant as JSON, as for a user's claims: the token has to fit into a header field.
const MAX_GRANT_BYTES: usize = 4096;

pub(crate) async fn run(command: &ApplicationCommand) -> Result<(), ExitError> {
    match command {
        ApplicationCommand::Add { application, grant } => add(application, grant).await,
        ApplicationCommand::Ensure {
            application,
            app_secret_file,
        } => ensure(application, app_secret_file).await,
        ApplicationCommand::List(args) => list(args).await,
        ApplicationCommand::Grant {
            application,
            grant: args,
            none,
        } => grant(application, args, *none).await,
        ApplicationCommand::RotateSecret {
            application,
            drop_old: true,
        } => change(application, Change::DropOld).await,
        ApplicationCommand::RotateSecret { application, .. } => rotate_secret(application).await,
        ApplicationCommand::Remove(args) => remove(args).await,
    }
}

async fn add(args: &ApplicationArgs, grant: &GrantArgs) -> Result<(), ExitError> {
    let grant = grant_of(grant, &args.app_id)?;
    let secret = random::secret().map_err(no_randomness)?;
    let add = Change::Add {
        secret: &secret,
        grant: &grant,
    };
    change(args, add).await?;
    hand_over(&secret, &args.app_id)
}

async fn grant(args: &ApplicationArgs, grant: &GrantArgs, none: bool) -> Result<(), ExitError> {
    let grant = grant_of(grant, &args.app_id)?;
    if grant == Grant::default() && !none {
        return Err(ExitError::Usage(
            "nothing is granted: say --audience, --scope or --claim, or --none to take all away"
                .to_owned(),
        ));
    }
    change(args, Change::Grant { grant: &grant }).await
}

fn grant_of(args: &GrantArgs, id: &AppId) -> Result<Grant, ExitError> {
    let claims = FurtherClaims::from_named(&args.claim);
    let grant = Grant {
        scope: args.scope.clone().unwrap_or_default(),
        audience: args.audience.clone(),
        claims: claims.map_err(|error| ExitError::Usage(format!("--claim: {error}")))?,
        ..Grant::default()
    };
    // The id is `sub`, `username`, `userId` and `client_id`.
    let size = match serde_json::to_vec(&([id; 4], &grant)) {
        Ok(json) => json.len(),
        Err(error) => {
            return Err(ExitError::Usage(format!(
                "--app-id {id}: id and grant cannot be written as JSON: {error}"
            )));
        }
    };
    if size > MAX_GRANT_BYTES {
        return Err(ExitError::Usage(format!(
            "--app-id {id}: id and grant are {size} bytes of JSON; at most {MAX_GRANT_BYTES} fit into a token"
        )));
    }
    if grant.audience.is_empty() && grant != Grant::default() {
        print_note("without --audience the application obtains no token");
    }
    Ok(grant)
}

async fn ensure(args: &ApplicationArgs, file: &Path) -> Result<(), ExitError> {
    let secret = secret_file::read(file)?;
    if secret.len() < MIN_SECRET_LENGTH {
        return Err(ExitError::Config(format!(
            "--app-secret-file {}: shorter than {MIN_SECRET_LENGTH} characters: \
             a secret is random text, as application add makes it",
            file.display()
        )));
    }
    change(args, Change::Ensure { secret: &secret }).await
}

async fn rotate_secret(args: &ApplicationArgs) -> Result<(), ExitError> {
    let secret = random::secret().map_err(no_randomness)?;
    change(args, Change::Rotate { secret: &secret }).await?;
    hand_over(&secret, &args.app_id)
}

/// Prints a new secret, which is stored nowhere else.
fn hand_over(secret: &str, app_id: &AppId) -> Result<(), ExitError> {
    output::hand_over(secret).map_err(|error| {
        ExitError::Software(format!(
            "standard output: {error}: the secret of --app-id {app_id} is lost; application rotate-secret makes \
             another"
        ))
    })
}

async fn remove(args: &ApplicationArgs) -> Result<(), ExitError> {
    let store = CommandStore::open(&args.store).await?;
    change_in(&store, &args.app_id, Change::Remove).await?;
    // Revoke after the removal: a revocation before it would miss tokens issued in between.
    let id = &args.app_id;
    if let Err(failure) = end_application(&store, id).await {
        // The removal stays, so the failure has to name the remaining step.
        return Err(failure.reworded(|why| {
            format!(
                "--app-id {id} is removed, but its tokens are not revoked: {why}; auth-server revoke --app {id} does that"
            )
        }));
    }
    let left = store.opened.read_applications().await?;
    if left.document()?.is_empty() {
        print_note(NONE_LEFT);
    }
    Ok(())
}

async fn list(args: &StoreArgs) -> Result<(), ExitError> {
    let store = CommandStore::open(args).await?;
    let applications = store.opened.read_applications().await?.document()?;
    if store.location.is_absent() {
        print_note(&format!("{}: is not there yet", store.location));
    } else if applications.is_empty() {
        print_note(NONE_LEFT);
    }
    for (id, secrets) in applications.registered() {
        let mut row = json!({"id": id, "secrets": secrets.len()});
        if let Some(grant) = secrets.grant().filter(|grant| **grant != Grant::default()) {
            row["grant"] = json!(grant);
        }
        print_row(&row)?;
    }
    Ok(())
}

const NONE_LEFT: &str = "no application is registered: any appId and appSecret get the key";

async fn change(args: &ApplicationArgs, change: Change<'_>) -> Result<(), ExitError> {
    let store = CommandStore::open(&args.store).await?;
    change_in(&store, &args.app_id, change).await
}

/// Reads, decides and commits, until no other change comes in between.
pub(crate) async fn change_in(
    store: &CommandStore,
    id: &AppId,
    change: Change<'_>,
) -> Result<(), ExitError> {
    let records = &store.opened;
    let location = &store.location;
    let now = store.now().await?;
    for _ in 0..ATTEMPTS {
        let held = records.read_applications().await?;
        let there = held.document()?;
        let former = there.get(id.as_str());
        let changed = change
            .apply(former, now)
            .map_err(|why| ExitError::Usage(format!("--app-id {id}: {why} in {location}")))?;
        if former == Some(&changed) {
            // The command that made this change may have had an unclear outcome.
            match records.confirm(vec![held.check()]).await? {
                true => return Ok(()),
                false => continue,
            }
        }
        let next = there.changed(id.clone(), changed, now);
        // False if another command has changed the document since it was read: then try again.
        let is_written = match records.write_applications(held.version, &next).await {
            // The response was lost: the stored document shows if the write took place.
            Err(unclear @ StoreError::Unclear(_)) => {
                let read = records.read_applications().await?;
                let is_there = read.document()?.get(id.as_str()) == next.get(id.as_str());
                if !is_there || !records.confirm(vec![read.check()]).await? {
                    return Err(unclear.into());
                }
                true
            }
            written => written?,
        };
        if is_written {
            audit::application(change.event(former), id.as_str(), Some(&actor()));
            print_note(&match store.pair {
                None => format!("{location}: no server has used this store yet"),
                Some(_) => {
                    format!("the servers of {location} follow within their --store-poll-interval")
                }
            });
            return Ok(());
        }
    }
    Err(ExitError::Unavailable(format!(
        "--app-id {id}: others keep changing the applications in {location}"
    )))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::store::conformance::unsteady::{Failure, Unsteady};
    use crate::store::open_store::OpenStore;

    /// Runs `auth-server application <words>` on a store of its own.
    struct Desk(tempfile::TempDir);

    impl Desk {
        fn command(&self, words: &[&str]) -> ApplicationCommand {
            let store = format!("--store=file:{}", self.0.path().join("data").display());
            let words = words.iter().copied().chain([store.as_str()]);
            let cli = postern_process::command_line::parse_words::<Cli>(
                ["auth-server", "application"].into_iter().chain(words),
            );
            match cli.unwrap().command {
                Command::Application(command) => command,
                other => unreachable!("{other:?}"),
            }
        }

        async fn run(&self, words: &[&str]) -> Result<(), ExitError> {
            run(&self.command(words)).await
        }

        fn secret_file(&self, secret: &str) -> String {
            let file = self.0.path().join(format!("{}.secret", secret.len()));
            std::fs::write(&file, secret).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            file.display().to_string()
        }

        async fn store(&self) -> CommandStore {
            let ApplicationCommand::List(args) = self.command(&["list"]) else {
                unreachable!("the command is list")
            };
            CommandStore::open(&args).await.unwrap()
        }

        async fn secrets(&self, id: &str) -> usize {
            let store = self.store().await;
            let held = store.opened.read_applications().await.unwrap();
            let applications = held.document().unwrap();
            applications.get(id).map_or(0, |secrets| secrets.len())
        }
    }

    #[tokio::test]
    async fn a_secret_that_others_hold_is_valid_once_and_has_a_length() {
        let desk = Desk(tempfile::tempdir().unwrap());
        let (first, second) = ("a".repeat(32), "b".repeat(33));
        let (first, second) = (desk.secret_file(&first), desk.secret_file(&second));
        let short = desk.secret_file("changeit");
        for (file, code, secrets) in [
            (&short, 78, 0),
            (&first, 0, 1),
            (&first, 0, 1),
            (&second, 0, 2),
            (&first, 0, 2),
        ] {
            let words = ["ensure", "--app-id", "orders", "--app-secret-file", file];
            let outcome = desk.run(&words).await;
            assert_eq!(
                outcome.err().map_or(0, |failure| failure.code()),
                code,
                "{file}"
            );
            assert_eq!(desk.secrets("orders").await, secrets, "{file}");
        }
    }

    /// With `?wait=` a commit is known to be safe only when replicas have acknowledged it, or a later one.
    #[tokio::test]
    async fn a_change_without_a_response_counts_where_it_is_confirmed() {
        let desk = Desk(tempfile::tempdir().unwrap());
        let (secret, id) = ("a".repeat(32), "orders".parse().unwrap());
        for (failure, code) in [
            (Failure::ResponseLost, 0),
            (Failure::NotAcknowledged, 69),
            (Failure::RequestLost, 69),
        ] {
            let (mut store, unsteady) = (desk.store().await, Unsteady::new());
            store.opened = OpenStore::unencrypted(Arc::new(Arc::clone(&unsteady)));
            unsteady.fail(failure);
            let outcome = change_in(&store, &id, Change::Ensure { secret: &secret }).await;
            let failed = outcome.err().map_or(0, |failure| failure.code());
            assert_eq!(failed, code, "{failure:?}");
        }
    }
}
