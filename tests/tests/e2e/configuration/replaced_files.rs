//! Files that are mounted alone and replaced on the host: the mount leads to the old file forever.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

use tests::actors::auth_server::{AuthServer, AuthServerPlan, admin_get};
use tests::actors::expect::has;
use tests::actors::process::Process;
use tests::actors::programs::Program;
use tests::actors::sessions::PASSWORD;
use tests::actors::stack::ForgedStack;
use tests::actors::users_file::UsersFile;
use tests::services::file_mounts::FileMounts;
use tests::services::redis_server::Redis;
use tests::wait;
use tests::wire::certificates::{Authority, write_private};
use tests::wire::message::Message;

const REMEDY: &str = "mount its directory";

/// Returns a users file with the user `ada`.
fn users() -> String {
    fs::read_to_string(UsersFile::with("ada", PASSWORD).path()).unwrap()
}

fn log_in(server: &AuthServer) -> Message {
    server.login_as("ada", PASSWORD)
}

/// Waits until log, readiness report and metric have the file; the program stays ready.
fn until_said(process: &Process, admin: SocketAddr, file: &str) {
    wait::until("the line about the file", || {
        let log = process.stderr();
        let mut lines = log.lines();
        lines.find(|line| line.contains(file) && line.contains(REMEDY))?;
        Some(())
    });
    let report = admin_get(admin, "/readyz");
    assert_eq!(report.status(), 200);
    let report = report.text();
    assert!(report.contains(file) && report.contains(REMEDY), "{report}");
    let metrics = admin_get(admin, "/metrics").text();
    has(&metrics, "_files_replaced_under_mount 1\n");
}

#[test]
fn an_older_users_file_lets_no_user_in_who_has_left() {
    let mounts = FileMounts::of(&[("users.toml", &users())]);
    let (Some(mounts), Some(redis)) = (mounts, Redis::start()) else {
        return;
    };
    let path = mounts.inside("users.toml");
    let location = format!("file:{}", path.display());
    let plan = || AuthServerPlan::polling().store(redis.url());
    let old = plan().mounts(&mounts).flags(["--users", &location]).ready();
    let token = old.token_of("ada", PASSWORD);
    let later = fs::read_to_string(UsersFile::with("bob", PASSWORD).path()).unwrap();
    write_private(&path, &later);
    let new = plan().flags(["--users", &location]).ready();
    old.until_revoked(&token);
    assert_eq!(log_in(&old).reason(), "users_stale");
    assert_eq!(log_in(&new).status(), 401);
    let bob = new.token_of("bob", PASSWORD);
    assert_eq!(old.verdict(&bob), "200", "nothing of theirs has ended");
}

#[test]
fn with_a_replaced_users_file_no_login_succeeds() {
    let Some(mounts) = FileMounts::of(&[("users.toml", &users())]) else {
        return;
    };
    let location = |path: &std::path::Path| format!("file:{}", path.display());
    let (inside, host) = (mounts.inside("users.toml"), mounts.host("users.toml"));
    let flags = ["--users", &location(&inside), "--refresh-tokens", "on"];
    let server = AuthServerPlan::new().mounts(&mounts).flags(flags).ready();
    let session = server.session_of("ada");
    let disable = ["user", "disable", "--account", "ada", "--users"];

    let renamed = mounts.command_line(Program::AuthServer).arguments(disable);
    let renamed = renamed.arguments([location(&inside)]).run();
    assert_ne!(renamed.code, Some(0));
    has(&renamed.stderr, REMEDY);
    assert_eq!(log_in(&server).status(), 200, "nothing has changed");

    let on_the_host = Program::AuthServer.command().arguments(disable);
    on_the_host.arguments([location(&host)]).run().says(0, "");
    wait::until("the end of logins", || {
        let response = log_in(&server);
        (response.status() == 503).then(|| assert_eq!(response.reason(), "users_stale"))
    });
    assert_eq!(server.refresh(&session.refresh).status(), 503);
    until_said(server.process(), server.admin(), "users.toml");
    let log = server.process().stderr();
    has(&log, "no login succeeds until a restart");
}

#[test]
fn with_a_replaced_configuration_the_last_rules_stay() {
    let Some(mounts) = FileMounts::of(&[("sidecar.toml", "public-path = [\"/open\"]")]) else {
        return;
    };
    let file = mounts.inside("sidecar.toml").display().to_string();
    let stack = ForgedStack::with(|plan| plan.under(mounts.wrapper()).flags(["--config", &file]));
    let sidecar = &stack.sidecar;
    mounts.replace("sidecar.toml", "public-path = []");
    until_said(sidecar.process(), sidecar.admin(), &file);
    assert_eq!(sidecar.anonymous().status("/open"), 200);
}

#[test]
fn a_replaced_certificate_is_presented_further() {
    let authority = Authority::new();
    let (one, other) = (authority.issue("one"), authority.issue("other"));
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let files = [
        ("tls.crt", read(one.paths().0)),
        ("tls.key", read(one.paths().1)),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let Some(mounts) = FileMounts::of(&files) else {
        return;
    };
    let path = |name| mounts.inside(name).display().to_string();
    let flags = [
        "--tls-cert",
        &path("tls.crt"),
        "--tls-key",
        &path("tls.key"),
    ];
    let plan = AuthServerPlan::new().mounts(&mounts).flags(flags);
    let server = plan.trusting(&authority).ready();
    mounts.replace("tls.crt", &read(other.paths().0));
    until_said(server.process(), server.admin(), "tls.crt");
    assert_eq!(server.anonymous().status("/.well-known/jwks.json"), 200);
}

#[test]
fn a_replaced_secret_of_an_application_is_of_no_use() {
    let secret = "a".repeat(32);
    let Some(mounts) = FileMounts::of(&[("orders", &secret)]) else {
        return;
    };
    let directory = mounts
        .inside("orders")
        .parent()
        .unwrap()
        .display()
        .to_string();
    let flags = ["--applications-dir", &directory];
    let server = AuthServerPlan::new().mounts(&mounts).flags(flags).ready();
    let query = format!("/client/user/secret/key?appId=orders&appSecret={secret}");
    let retrieve = || server.anonymous().status(&query);
    assert_eq!(retrieve(), 200);
    mounts.replace("orders", &"b".repeat(32));
    wait::until("the end of the secret", || retrieve() == 401);
    until_said(server.process(), server.admin(), "orders");
}

#[test]
fn what_kubernetes_swaps_in_a_mounted_directory_arrives() {
    let Some(mounts) = FileMounts::of(&[]) else {
        return;
    };
    let mounts = mounts.and_directory("secret");
    let volume = mounts.host("secret");
    for (data, text) in [
        ("..1", users()),
        ("..2", users().replace("\"ada\"", "\"bob\"")),
    ] {
        fs::create_dir(volume.join(data)).unwrap();
        write_private(&volume.join(data).join("users.toml"), &text);
    }
    symlink("..1", volume.join("..data")).unwrap();
    symlink("..data/users.toml", volume.join("users.toml")).unwrap();
    let file = mounts.inside("secret").join("users.toml");
    let flags = ["--users", &format!("file:{}", file.display())];
    let server = AuthServerPlan::new().mounts(&mounts).flags(flags).ready();
    assert_eq!(log_in(&server).status(), 200);
    symlink("..2", volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    fs::remove_dir_all(volume.join("..1")).unwrap();
    wait::until("the other users", || log_in(&server).status() == 401);
    let metrics = admin_get(server.admin(), "/metrics").text();
    has(&metrics, "_files_replaced_under_mount 0\n");
}
