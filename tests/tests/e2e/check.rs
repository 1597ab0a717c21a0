//! `sidecar check`: attacks on a configuration, and warnings about it.

use tests::certificates::Authority;
use tests::process::Finished;
use tests::programs::Program;
use tests::sidecar::SidecarPlan;

use super::command_line::{CONFIG, SIDECAR, run};

fn check(flags: &[&str]) -> Finished {
    run(
        Program::Sidecar,
        &[&["check"], &SIDECAR[1..], flags].concat(),
    )
}

/// Returns the numbers of rejected tokens and paths in the report.
fn rejected(end: &Finished) -> Vec<usize> {
    let report = end
        .stdout
        .lines()
        .find(|line| line.starts_with("# attacks: "));
    let report = report.unwrap_or_else(|| panic!("no report: {}{}", end.stdout, end.stderr));
    assert!(report.contains("rejected as expected"), "{report}");
    let numbers = report.split(' ').filter_map(|word| word.parse().ok());
    numbers.take(2).collect()
}

#[test]
fn check_attacks_its_own_configuration_and_counts() {
    let plain = check(&[]);
    assert_eq!(plain.code, Some(0), "{}", plain.stderr);
    let with_patterns = check(&[
        "--public-path",
        "/static/**,/health",
        "--optional-auth-path",
        "/feed/**",
    ]);
    assert_eq!(with_patterns.code, Some(0), "{}", with_patterns.stderr);
    let (few, many) = (rejected(&plain), rejected(&with_patterns));
    assert!(few[0] >= 30 && many[0] >= 30, "{few:?} {many:?}");
    assert!(many[1] > few[1] && many[1] >= 200, "{few:?} {many:?}");
}

#[test]
fn check_attacks_with_keys_of_the_configured_kind() {
    for flags in [
        &["--signing-type", "ecdsa", "--issuer", "me", "--leeway", "0"][..],
        &["--signing-type", "hmac", "--trust-shared-secret"],
        &[
            "--audience",
            "orders",
            "--allow-no-exp",
            "--token-cookie",
            "t",
            "--websocket-token",
        ],
        &["--websocket-token", "--upstream", "h2c://127.0.0.1:1"],
        &[
            "--app-name",
            "orders",
            "--max-authorization-bytes",
            "2000",
            "--public-path",
            "/**",
        ],
    ] {
        let end = check(flags);
        assert_eq!(end.code, Some(0), "{flags:?}: {}", end.stderr);
        assert!(rejected(&end)[0] >= 30, "{flags:?}: {}", end.stdout);
    }
}

#[test]
fn a_pattern_that_matches_more_than_it_seems_to_has_a_warning() {
    for (flags, warning) in [
        (
            &["--public-path", "/**"][..],
            "--public-path: a pattern matches every path",
        ),
        (
            &["--public-path", "/current/**"],
            "/current/user/details, which still needs a token",
        ),
        (&["--public-path", "/**/*.js"], "--public-path '/**/*.js': "),
        (&["--public-path", "/docs/"], "--public-path '/docs/': "),
        (
            &["--app-name", "orders", "--public-path", "/orders/x"],
            "/orders/orders/x",
        ),
        (
            &["--optional-auth-path", "/**"],
            "--optional-auth-path: a pattern matches every path",
        ),
    ] {
        let end = check(flags);
        assert_eq!(end.code, Some(0), "{flags:?}: {}", end.stderr);
        let warned = end
            .stdout
            .lines()
            .any(|line| line.starts_with("# warning: ") && line.contains(warning));
        assert!(warned, "{flags:?}: {}", end.stdout);
    }
}

#[test]
fn a_pattern_that_changes_when_decoded_is_rejected_first() {
    for pattern in ["/a//b", "/a;b/**", "/a%2f**", "/%61", "/a/../b", "/a%25b"] {
        for flag in ["--public-path", "--optional-auth-path"] {
            let end = check(&[flag, pattern]);
            assert_eq!(end.code, Some(CONFIG), "{pattern}: {}", end.stdout);
            assert!(
                end.stderr.contains(flag) && end.stderr.contains(pattern),
                "{}",
                end.stderr
            );
            assert_eq!(end.stdout, "");
        }
    }
}

#[test]
fn check_and_start_name_expired_certificates_alike() {
    let authority = Authority::new();
    let expired = authority.issue_expired_client();
    let (cert, key) = expired.paths();
    let (auth_server, service) = ("https://127.0.0.1:1/auth", "https://127.0.0.1:1");
    let pairs = [
        ("--tls-cert", "--tls-key"),
        ("--upstream-client-cert", "--upstream-client-key"),
        ("--auth-client-cert", "--auth-client-key"),
    ];
    let flags = pairs
        .map(|(of_cert, of_key)| [of_cert, cert, of_key, key])
        .concat();

    let source = ["--auth-server", auth_server, "--upstream", service];
    let end = run(
        Program::Sidecar,
        &[&["check"], &SIDECAR[3..], &source, &flags].concat(),
    );
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let sidecar = SidecarPlan::to(service, auth_server).flags(flags).start();
    for (flag, _) in pairs {
        let reported = |line: &str| {
            line.contains(flag) && line.contains(cert) && line.contains("certificate has expired")
        };
        let log = sidecar.process().output();
        assert_eq!(
            log.lines().filter(|line| reported(line)).count(),
            1,
            "{log}"
        );
        let warned = |line: &str| line.starts_with("# warning: ") && reported(line);
        let count = end.stdout.lines().filter(|line| warned(line)).count();
        assert_eq!(count, 1, "{flag}: {}", end.stdout);
    }
}
