//! `check --online` and `check --strict`: the checks of a pipeline before a roll-out.

use tests::actors::auth_server::AuthServer;
use tests::actors::process::Finished;
use tests::actors::programs::Program;
use tests::actors::users_file::UsersFile;
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::{FakeAuthServer, json_response};
use tests::services::tls_service::TlsService;
use tests::wire::certificates::Authority;
use tests::wire::free_address::free_address;

use super::command_line::{CONFIG, SIDECAR};

const UNAVAILABLE: i32 = 69;

/// Runs a check of a sidecar between these two.
fn online(auth_server: &str, service: &str, more: &[&str]) -> Finished {
    Program::Sidecar
        .command()
        .arguments(["check", "--online", "--auth-server", auth_server])
        .arguments(["--upstream", service, "--app-id", "orders"])
        .arguments(more.iter().copied())
        .environment("POSTERN_APP_SECRET", "not-registered")
        .run()
}

fn lines<'t>(end: &'t Finished, start: &str) -> Vec<&'t str> {
    let lines = end.stdout.lines();
    lines.filter_map(|line| line.strip_prefix(start)).collect()
}

#[test]
fn what_serve_would_find_is_printed_and_all_is_well() {
    let (service, server) = (EchoService::start(), AuthServer::start());
    let end = online(&server.url(), &service.url(), &[]);
    assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
    let found = lines(&end, "# online: ");
    let starts = [
        "clock of ",
        "keys from ",
        "0 revocations from ",
        "service at ",
    ];
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found:?}");
    }
    assert_eq!(found.len(), 4, "{found:?}");
    let other = FakeAuthServer::serving(&server.served_key());
    let end = online(&other.url(), &service.url(), &[]);
    let warnings = lines(&end, "# warning: ");
    assert!(
        warnings[0].starts_with("no revocation list"),
        "{warnings:?}"
    );
}

#[test]
fn what_is_away_is_69_and_what_rejects_is_78() {
    let (service, server) = (EchoService::start(), AuthServer::start());
    let unreachable = format!("http://{}", free_address());
    let no_server = format!("{unreachable}/auth");
    let wrong_context = server.url().replace("/auth", "/other");
    let (server_url, service_url) = (server.url(), service.url());
    let exposed = ["--pod-ip=127.0.0.1", "--require-unexposed"];
    let (no_key, away) = ("--auth-server: no key", "--upstream http://");
    let reachable = "--require-unexposed: the service is reachable on the pod's address";
    for (auth_server, upstream, more, code, named) in [
        (&no_server, &service_url, &[][..], UNAVAILABLE, no_key),
        (&server_url, &unreachable, &[], UNAVAILABLE, away),
        (&wrong_context, &service_url, &[], CONFIG, no_key),
        // Permanent errors come before temporary ones.
        (&wrong_context, &unreachable, &[], CONFIG, no_key),
        (&server_url, &service_url, &exposed, CONFIG, reachable),
    ] {
        let end = online(auth_server, upstream, more);
        assert_eq!(end.code, Some(code), "{}{}", end.stdout, end.stderr);
        assert!(end.stderr.contains(named), "{named}: {}", end.stderr);
        assert!(
            !lines(&end, "# online: failed: ").is_empty(),
            "{}",
            end.stdout
        );
    }
    let end = online(&server.url(), &service.url(), &["--pod-ip=127.0.0.1"]);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert!(lines(&end, "# warning: ")[0].starts_with("--pod-ip: the service is reachable"));
}

#[test]
fn a_response_that_may_change_is_69_and_one_that_stays_is_78() {
    let service = EchoService::start();
    for (status, code) in [
        ("503 Service Unavailable", UNAVAILABLE),
        ("429 Too Many Requests", UNAVAILABLE),
        ("408 Request Timeout", UNAVAILABLE),
        ("400 Bad Request", CONFIG),
        ("401 Unauthorized", CONFIG),
        ("404 Not Found", CONFIG),
    ] {
        let server = FakeAuthServer::replying(json_response(status, "{}"));
        let end = online(&server.url(), &service.url(), &[]);
        assert_eq!(end.code, Some(code), "{status}: {}", end.stderr);
        let names_tls = end.stderr.contains("a port of TLS, https://, responds so");
        assert_eq!(names_tls, status.starts_with("400"), "{}", end.stderr);
        let jwks_url = format!("--jwks={}", server.url());
        let end = Program::Sidecar.run(&[
            "check",
            "--online",
            &jwks_url,
            "--issuer=i",
            "--audience=a",
            "--upstream",
            &service.url(),
        ]);
        assert_eq!(end.code, Some(code), "{status}: {}", end.stderr);
        let names_tls = end.stderr.contains("a port of TLS, https://, responds so");
        assert_eq!(names_tls, status.starts_with("400"), "{}", end.stderr);
    }
}

#[test]
fn an_auth_server_whose_certificate_is_not_trusted_is_78() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (service, key) = (EchoService::start(), "0".repeat(32));
    let tls = authority.issue_server(&["127.0.0.1"]).serving(None);
    let over_tls = FakeAuthServer::serving_tls(tls, &key);
    let in_plain = AuthServer::start();
    let plain = in_plain.url().replace("http://", "https://");
    for (url, named) in [(&over_tls.url(), "--auth-ca"), (&plain, "no TLS came back")] {
        let trusted = format!("--auth-ca={}", other.file().display());
        let end = online(url, &service.url(), &[&trusted]);
        end.says(CONFIG, named);
    }
}

#[test]
fn a_service_whose_certificate_is_not_accepted_is_78() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = TlsService::start(&authority.issue("service"), None);
    let (ours, others) = (authority.file(), other.file());
    let auth_server = AuthServer::start();
    for (ca, name, words) in [
        (&others, "localhost", "is not trusted; --upstream-ca names"),
        (&ours, "other.test", "only valid for 127.0.0.1 or localhost"),
    ] {
        let ca = format!("--upstream-ca={}", ca.display());
        let name = format!("--upstream-server-name={name}");
        let url = tls.url("localhost");
        let end = online(&auth_server.url(), &url, &[&ca, &name]);
        end.says(CONFIG, words);
        let has_remedy = end.stderr.contains("--upstream-ca names");
        assert_eq!(
            has_remedy,
            words.contains("--upstream-ca"),
            "{}",
            end.stderr
        );
    }
}

#[test]
fn strict_ends_with_78_where_there_is_anything_to_warn_of() {
    let users = UsersFile::with("ada", "correct horse");
    let users = format!("--users={}", users.location());
    // A secret on the command line causes a warning.
    let secret = ("POSTERN_APP_SECRET", "s");
    let (sidecar, warned) = (&SIDECAR[1..5], "--public-path=/**");
    let (server, issuer) = (&[users.as_str()][..], ("POSTERN_ISSUER", "auth"));
    for (program, needed, variable, warned) in [
        (Program::Sidecar, sidecar, secret, warned),
        (Program::AuthServer, server, issuer, "--rotation-lead=1"),
    ] {
        let check = |more: &[&str]| {
            program
                .command()
                .arguments([&["check"], needed, more].concat())
                .environment(variable.0, variable.1)
                .run()
        };
        let lenient = check(&[warned]);
        assert_eq!(lenient.code, Some(0), "{}", lenient.stderr);
        let strict = check(&[warned, "--strict"]);
        assert_eq!(strict.code, Some(CONFIG), "{}", strict.stdout);
        assert_eq!(strict.stdout, lenient.stdout);
        let flag = warned.split('=').next().unwrap();
        let named = format!("error: --strict: {flag}");
        assert!(strict.stderr.starts_with(&named), "{}", strict.stderr);
        let clean = check(&["--strict"]);
        assert_eq!(clean.code, Some(0), "{}", clean.stderr);
    }
    let end = Program::Sidecar
        .command()
        .arguments(["check", "--strict"])
        .arguments(SIDECAR[1..].iter().copied())
        .environment("POSTERN_LEEWEY", "5")
        .run();
    end.says(CONFIG, "POSTERN_LEEWEY");
}

#[test]
fn a_claim_or_a_pattern_that_would_never_match_is_warned_about() {
    let source = [
        "check",
        "--jwks=https://idp/keys",
        "--issuer=i",
        "--audience=a",
    ];
    let pointer = Some("/realm_access/roles");
    for (flag, warning) in [
        ("--claim=other=realm_access.roles", pointer),
        ("--claim-header=X-Roles=realm_access.roles", pointer),
        ("--claim=other=/realm_access/roles", None),
        ("--claim=other=https://example.com/roles", None),
    ] {
        let end = Program::Sidecar.run(&[&source[..], &[flag]].concat());
        assert_eq!(end.code, Some(0), "{flag}: {}", end.stderr);
        let warnings = lines(&end, "# warning: ");
        let found = warnings.len();
        assert_eq!(found, usize::from(warning.is_some()), "{warnings:?}");
        let expected = warning.unwrap_or_default();
        assert!(
            warnings.iter().all(|line| line.contains(expected)),
            "{warnings:?}"
        );
    }
}
