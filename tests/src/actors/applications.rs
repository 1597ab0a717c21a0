//! Application registration with the auth server's own command, as an operator does it.

use crate::actors::auth_server::AuthServer;
use crate::actors::programs::Program;

/// Registers an application beside a running server and returns its secret.
///
/// # Panics
/// When the command fails.
pub fn register(server: &AuthServer, id: &str) -> String {
    register_in(server.store(), id)
}

/// Registers an application in a store.
///
/// # Panics
/// When the command fails.
pub fn register_in(store: &str, id: &str) -> String {
    let words = ["application", "add", "--app-id", id, "--store", store];
    let finished = Program::AuthServer.run(&words);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let secret = finished.stdout.lines().last().unwrap_or_default().trim();
    let secret = secret.rsplit([' ', '=']).next().unwrap_or_default();
    assert!(
        secret.len() >= 32,
        "no secret on the last line of {}",
        finished.stdout
    );
    secret.to_owned()
}

/// Removes the last application of a running server's store, which opens the key to any client.
///
/// # Panics
/// When the command fails.
pub fn remove_last(server: &AuthServer, id: &str) {
    server.done(&["application", "remove", "--app-id", id]);
}
