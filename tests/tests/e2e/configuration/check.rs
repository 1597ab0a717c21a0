//! `sidecar check`: its list of patterns, and its warnings.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tests::actors::auth_server::AuthServerPlan;
use tests::actors::expect::has;
use tests::actors::process::{Finished, Process};
use tests::actors::programs::Program;
use tests::actors::sidecar::{self, SidecarPlan};
use tests::wire::certificates::Authority;

use super::command_line::SIDECAR;

fn check(flags: &[&str]) -> Finished {
    Program::Sidecar.run(&[&["check"], &SIDECAR[1..], flags].concat())
}

#[test]
fn check_lists_what_each_pattern_opens_and_what_catches_nothing() {
    const CONFIG: &str = "
app-name = 'shop'
public-path = ['/static/**', 'GET,HEAD /a%20b/?', '/current/user/details', 'GET /half']
optional-auth-path = ['/feed/*', 'GET /static/x', '/half']
[[rule]]
name = 'admin'
methods = ['DELETE']
paths = ['/admin/**']
scope = ['admin']
";
    const LISTED: &str = "\
# public: every method of /shop/static/**, as in /shop/static/x/x
# public: GET,HEAD of /shop/a%20b/?, as in /shop/a%20b/x
# public: every method of /shop/current/user/details; catches nothing: these paths are the sidecar's own
# public: GET of /shop/half
# optional: every method of /shop/feed/*, as in /shop/feed/x
# optional: GET of /shop/static/x; catches nothing: these paths are public
# optional: every method of /shop/half
# rule admin: DELETE of /shop/admin/**, as in /shop/admin/x/x
# every other request needs a token
";
    let checked = |more: &[&str]| sidecar::check(CONFIG, &[&SIDECAR[1..], more].concat());
    let listed = checked(&["--paths"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert_eq!(listed.stdout, checked(&[]).stdout + LISTED);
    assert!(
        check(&["--paths"])
            .stdout
            .ends_with("\n# every other request needs a token\n")
    );
}

#[test]
fn a_key_cache_without_a_directory_has_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    for (directory, warned) in [(directory.path(), false), ("/nowhere".as_ref(), true)] {
        let checked = check(&["--key-cache", directory.join("keys").to_str().unwrap()]);
        let warning = "# warning: --key-cache /nowhere: there is no such directory";
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        assert_eq!(
            checked.stdout.contains(warning),
            warned,
            "{}",
            checked.stdout
        );
    }
}

#[test]
fn patterns_that_match_every_path_have_a_warning() {
    for (flag, patterns, warned) in [
        ("--public-path", "/**", true),
        ("--public-path", "/*,/*/**", true),
        ("--public-path", "GET,HEAD /**", true),
        ("--optional-auth-path", "/**", true),
        ("--public-path", "/*", false),
        ("--public-path", "/static/**,/a/*/b,/", false),
    ] {
        let end = check(&[flag, patterns]);
        assert_eq!(end.code, Some(0), "{patterns}: {}", end.stderr);
        let line = format!("# warning: {flag}: its patterns match every path, ");
        let found = end.stdout.contains(&line);
        assert_eq!(found, warned, "{patterns}: {}", end.stdout);
    }
}

#[test]
fn check_and_start_name_expired_certificates_alike() {
    let authority = Authority::new();
    let expired = authority.issue_expired_client();
    let (cert, key) = expired.paths();
    let flags_of = |names: &[&str]| -> Vec<String> {
        let flags = |name: &&str| {
            [
                format!("--{name}-cert={cert}"),
                format!("--{name}-key={key}"),
            ]
        };
        names.iter().flat_map(flags).collect()
    };
    let are_named = |names: &[&str], check: &Finished, process: &Process| {
        assert_eq!(check.code, Some(0), "{}", check.stderr);
        for name in names {
            let line = format!("--{name}-cert {cert}: the certificate has expired");
            assert_eq!(check.stdout.matches(&line).count(), 1, "{}", check.stdout);
            assert_eq!(process.until_logged(&line), 1, "{name}");
            has(&check.stdout, format!("# warning: {line}"));
        }
    };
    let names = ["tls", "upstream-client", "auth-client"];
    let (auth_server, service) = ("https://127.0.0.1:1/auth", "https://127.0.0.1:1");
    let check = Program::Sidecar.command().arguments(["check"]);
    let check = check.arguments(&SIDECAR[3..]).arguments(flags_of(&names));
    let source = ["--auth-server", auth_server, "--upstream", service];
    let sidecar = SidecarPlan::to(service, auth_server).flags(flags_of(&names));
    let check = check.arguments(source).run();
    are_named(&names, &check, sidecar.start().process());

    let store = "rediss://127.0.0.1:1";
    let check = Program::AuthServer
        .command()
        .arguments(["check", "--store", store]);
    let check = check.arguments(flags_of(&["tls", "store-client"])).run();
    let server = AuthServerPlan::new()
        .store(store)
        .flags(flags_of(&["store-client"]));
    let server = server.tls(&authority, &expired).start();
    are_named(&["tls", "store-client"], &check, server.process());
}

/// The faults of a pair are a table of `postern_transport::tls::certificate`; each flag goes through it.
#[test]
fn files_of_tls_that_cannot_be_used_stop_start_and_check() {
    let authority = Authority::new();
    let open = authority.issue("open");
    fs::set_permissions(&open.key, fs::Permissions::from_mode(0o644)).unwrap();
    let (cert, key) = open.paths();
    let (auth_server, service) = ("https://127.0.0.1:1/auth", "https://127.0.0.1:1");
    let source = ["--auth-server", auth_server, "--upstream", service];
    let of_sidecar = |flags: &[&str]| {
        let start = SidecarPlan::to(service, auth_server).flags(flags);
        let check = [&["check"], &SIDECAR[3..], &source, flags].concat();
        [start.fails(), Program::Sidecar.run(&check)]
    };
    let store = "rediss://127.0.0.1:1";
    let of_auth_server = |flags: &[&str]| {
        let start = AuthServerPlan::new().store(store).flags(flags);
        let check = [&["check", "--store", store], flags].concat();
        [start.fails(), Program::AuthServer.run(&check)]
    };
    let (tls, is_open) = (["--tls-cert", cert, "--tls-key", key], "is open to others");
    let upstream = ["--upstream-client-cert", cert, "--upstream-client-key", key];
    let auth = ["--auth-client-cert", cert, "--auth-client-key", key];
    let of_store = ["--store-client-cert", cert, "--store-client-key", key];
    for (ends, flag, problem) in [
        (of_auth_server(&tls), "--tls-key", is_open),
        (of_auth_server(&tls[..2]), "--tls-key", ""),
        (of_auth_server(&of_store), "--store-client-key", is_open),
        (of_auth_server(&["--store-ca", key]), "--store-ca", ""),
        (of_sidecar(&tls), "--tls-key", is_open),
        (of_sidecar(&tls[..2]), "--tls-key", ""),
        (of_sidecar(&["--client-ca", cert]), "--tls-cert", ""),
        (of_sidecar(&upstream), "--upstream-client-key", is_open),
        (of_sidecar(&["--upstream-ca", key]), "--upstream-ca", ""),
        (of_sidecar(&auth), "--auth-client-key", is_open),
        (of_sidecar(&["--auth-ca", key]), "--auth-ca", ""),
    ] {
        for end in ends {
            let said = &end.stderr;
            assert_eq!(end.code, Some(78), "{flag}: {said}");
            assert!(
                said.contains(flag) && said.contains(problem),
                "{flag}: {said}"
            );
        }
    }
}
