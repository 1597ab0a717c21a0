//! Tokens of other issuers than the auth server (`issuers.toml`, `docs/issuers.md`): the keys that
//! count, their algorithms, and the claims that become the user.

use std::path::Path;

use tests::actors::expect::has;
use tests::actors::issuer::IssuerTable;
use tests::actors::programs::Program;
use tests::actors::sidecar::{EVERY_SECOND, NEVER, SidecarPlan};
use tests::keys::{SigningKey, SigningType};
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::json_response;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::tables::documented::command_under;
use tests::tables::{Verdicts, load};
use tests::wait;
use tests::wire::certificates::{Authority, write_private};
use tests::wire::metrics::sum;

use super::several_issuers::published::Published;
use super::several_issuers::tokens_get_their_verdicts;

const DOCUMENT: &str = "docs/issuers.md";

fn published(name: &str) -> Published {
    let table: IssuerTable = load("issuers.toml");
    let mut rows = table.issuer.into_iter();
    Published::new(rows.find(|row| row.name == name).expect("a row"))
}

/// Returns a sidecar that fetches the keys of an issuer.
fn fetching(service: &EchoService, one: &Published) -> SidecarPlan {
    let flags = documented(&one.row.name, &[("--jwks", &one.url())]);
    SidecarPlan::of_issuer(service, flags)
}

/// Returns the documented command line, with the harness's parts for the unreachable ones.
fn documented(heading: &str, replaced: &[(&str, &str)]) -> Vec<String> {
    let mut words = command_under(DOCUMENT, heading).into_iter();
    assert_eq!(words.next().as_deref(), Some("sidecar"));
    assert_eq!(words.next().as_deref(), Some("serve"));
    let mut flags = Vec::new();
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        // The plan sets these itself.
        if flag == "--app-name" || flag == "--upstream" {
            continue;
        }
        // The issuer is not on this machine, its key set is.
        let discovered = replaced.iter().find(|_| flag == "--issuer-url");
        if let Some((flag_of_set, set)) = discovered {
            let flags_of_set = ["--issuer", &value, flag_of_set, set];
            flags.extend(flags_of_set.map(str::to_owned));
            continue;
        }
        let other = replaced.iter().find(|(name, _)| *name == flag);
        let value = other.map_or(value, |(_, value)| (*value).to_owned());
        flags.extend([flag, value]);
    }
    flags
}

/// Starts the documented sidecar in front of an issuer of the table, and checks each token.
fn every_token_gets_its_verdict(name: &str) {
    let (one, service) = (published(name), EchoService::start());
    let url = format!("{}?realm=shop", one.url());
    let flags = documented(name, &[("--jwks", &url)]);
    let sidecar = SidecarPlan::of_issuer(&service, flags).flags(NEVER).ready();
    let mut verdicts = Verdicts::default();
    tokens_get_their_verdicts(&one, &sidecar, &service, &mut verdicts);
    verdicts.conclude();
    let requests = one.server.retrievals();
    assert!(
        requests.len() <= 2,
        "a fetch at the start, and one for unknown keys"
    );
    for request in requests {
        assert_eq!(request.target(), b"/keys?realm=shop");
    }
}

#[test]
fn keycloak_s_tokens_are_verified_by_the_documented_command() {
    every_token_gets_its_verdict("Keycloak");
}

#[test]
fn auth0_s_tokens_are_verified_by_the_documented_command() {
    every_token_gets_its_verdict("Auth0");
}

#[test]
fn usual_tokens_of_other_providers_become_the_documented_user() {
    for provider in ["Microsoft Entra ID", "Okta", "Google", "Amazon Cognito"] {
        every_token_gets_its_verdict(provider);
    }
}

#[test]
fn every_algorithm_is_verified_by_the_documented_command() {
    every_token_gets_its_verdict("Several algorithms");
}

/// Writes the files that the documented commands name under `/etc/postern`.
fn write_files(directory: &Path, jwks: &str, pem: &str) {
    let authority = Authority::new();
    let client = authority.issue_client();
    for (file, name) in [
        (authority.file(), "ca.pem"),
        (client.cert, "client.pem"),
        (client.key, "client.key"),
    ] {
        std::fs::copy(file, directory.join(name)).unwrap();
    }
    std::fs::write(directory.join("jwks.json"), jwks).unwrap();
    std::fs::write(directory.join("issuer.pem"), pem).unwrap();
}

#[test]
fn every_documented_command_is_a_valid_one() {
    let one = published("Several algorithms");
    let directory = tempfile::tempdir().unwrap();
    let pem = one.issuer.public_pem("p256");
    write_files(directory.path(), &one.jwks(), &pem);
    let headings = "By the issuer alone|Keycloak|Auth0|Several algorithms|A key set in a file|\
         A public key in a file";
    for heading in headings.split('|') {
        let words = command_under(DOCUMENT, heading);
        let here = format!("{}/", directory.path().display());
        let words = words
            .iter()
            .map(|word| word.replace("/etc/postern/", &here));
        let check = Program::Sidecar.command().arguments(["check"]);
        let end = check.arguments(words.skip(2)).run();
        assert_eq!(end.code, Some(0), "{heading}: {}", end.stderr);
        // The output is a configuration file with the same meaning.
        let file = directory.path().join("postern.toml");
        std::fs::write(&file, &end.stdout).unwrap();
        let again = Program::Sidecar.run(&["check", "--config", file.to_str().unwrap()]);
        again.says(0, "");
        assert_eq!(again.stdout, end.stdout, "{heading}");
    }
}

#[test]
fn keys_from_files_are_read_at_the_tick_and_survive_breaks() {
    let [one, other] = [(); 2].map(|()| published("Several algorithms"));
    let [old_pem, new_pem] = [&one, &other].map(|one| one.issuer.public_pem("p256"));
    for (heading, file, old, new) in [
        ("A key set in a file", "jwks.json", one.jwks(), other.jwks()),
        ("A public key in a file", "issuer.pem", old_pem, new_pem),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(file);
        std::fs::write(&path, old).unwrap();
        let file_path = path.display().to_string();
        let service = EchoService::start();
        let flags = documented(heading, &[("--jwks", &file_path)]);
        let plan = SidecarPlan::of_issuer(&service, &flags).flags(EVERY_SECOND);
        let sidecar = plan.ready();
        let bearing = |one: &Published| sidecar.bearing(&one.signed(one.token("ES256")));
        assert_eq!(bearing(&one).status("/list"), 200, "{heading}");
        assert_eq!(bearing(&other).status("/list"), 401, "{heading}");

        let private = SigningKey::generate(SigningType::Ecdsa).private();
        for broken in ["", "<html>", &private, &"x".repeat(70_000)] {
            std::fs::write(&path, broken).unwrap();
            let before = sidecar.process().stderr().matches("WARN").count();
            wait::until("the failure in the log", || {
                sidecar.process().stderr().matches("WARN").count() > before
            });
            assert_eq!(bearing(&one).status("/list"), 200, "{heading}");
        }
        // As editors on Windows write it.
        std::fs::write(&path, format!("\u{feff}{new}")).unwrap();
        wait::until("the new key", || bearing(&other).status("/list") == 200);
        assert_eq!(bearing(&one).status("/list"), 401, "{heading}");
        assert_eq!(sidecar.readiness(), 200);
    }
}

#[test]
fn a_file_of_keys_that_cannot_be_used_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    write_private(&path, &SigningKey::generate(SigningType::Rsa).private());
    let list = directory.path().join("list");
    write_private(&list, "[{\"kty\": \"RSA\"}]");
    let service = EchoService::start();
    let [path, list] = [&path, &list].map(|path| path.to_str().unwrap());
    for (flag, file, more, why) in [
        ("--jwks", path, &[][..], "this is a private key"),
        ("--jwks", list, &[], "found a list"),
        ("--jwks", "/nowhere", &[], "No such file"),
        (
            "--auth-ca",
            path,
            &["--jwks=https://idp/keys"],
            "no certificate in PEM (CERTIFICATE), but PEM of PRIVATE KEY",
        ),
    ] {
        let flags = [&[flag, file, "--issuer", "i", "--audience", "a"], more].concat();
        let end = SidecarPlan::of_issuer(&service, flags).fails();
        assert_eq!(end.code, Some(78), "{}", end.stderr);
        let line = end.stderr.lines().last().unwrap_or_default();
        assert!(line.contains(flag) && line.contains(file), "{line}");
        assert!(line.contains(why), "{line}");
        assert!(!end.stderr.contains("BEGIN"), "{}", end.stderr);
    }
}

fn jwks_response(fields: &[&str], set: &str) -> Reply {
    Reply::Bytes(response("200 OK", fields, set.as_bytes()))
}

#[test]
fn the_key_set_is_fetched_by_version_and_survives_errors() {
    let [one, untrusted] = [(); 2].map(|()| published("Several algorithms"));
    one.replies(jwks_response(&["ETag: \"v1\""], &one.jwks()));
    let service = EchoService::start();
    let sidecar = fetching(&service, &one).flags(EVERY_SECOND).ready();
    let bearing = |one: &Published| sidecar.bearing(&one.signed(one.token("EdDSA")));

    one.replies(Reply::Bytes(response("304 Not Modified", &[], b"")));
    let requests = one.server.until_fetched(2);
    assert_eq!(requests[0].header("if-none-match"), [""; 0]);
    assert_eq!(requests.last().unwrap().header("if-none-match"), ["\"v1\""]);
    assert_eq!(bearing(&one).status("/list"), 200);

    let location = format!("Location: {}", untrusted.url());
    let padded = format!("{}{}", one.jwks(), " ".repeat(70_000));
    let redirect = response("302 Found", &[&location], b"");
    // Others are in `bad_key_responses.toml`, and sets without a usable key in `crates/token`.
    for (name, invalid) in [
        ("a redirect", Reply::Bytes(redirect)),
        ("an error", json_response("500 Error", &untrusted.jwks())),
        ("too long", json_response("200 OK", &padded)),
    ] {
        one.replies(invalid);
        one.server.until_fetched(2);
        assert_eq!(bearing(&one).status("/list"), 200, "{name}");
        let rejected = bearing(&untrusted).get("/list");
        assert_eq!(rejected.verdict(), "401 token_signature", "{name}");
    }
    let found = untrusted.server.retrievals().len();
    assert_eq!(found, 0, "redirects are not followed");
    assert_eq!(sidecar.readiness(), 200);

    one.replies(jwks_response(&[], &untrusted.jwks()));
    wait::until("the new keys", || {
        bearing(&untrusted).status("/list") == 200
    });
    assert_eq!(bearing(&one).verdict("/list"), "401 token_signature");
}

#[test]
fn a_fresh_response_is_kept_until_an_unknown_key() {
    let (one, service) = (published("Keycloak"), EchoService::start());
    let set = one.jwks();
    let former = set.replace("FJ86GcF3jTbNLOco4NvZkUCIUmfYCqoqtOQeMfbhNlE", "former");
    let fresh = ["Cache-Control: max-age=3600"];
    one.replies(jwks_response(&fresh, &former));
    let sidecar = fetching(&service, &one).flags(EVERY_SECOND).ready();
    wait::until("three ticks", || {
        sum(sidecar.admin(), "postern_sidecar_key_refreshes_total", &[]) >= 4
    });
    assert_eq!(one.server.retrievals().len(), 1, "the response was fresh");

    one.replies(jwks_response(&fresh, &set));
    let token = one.signed(one.token("an access token of a user"));
    assert_eq!(sidecar.bearing(&token).status("/list"), 200);
    let fetches = one.server.retrievals().len();
    assert_eq!(fetches, 2, "at once, not at the next tick");
}

/// The request accepts `identity` alone; servers and proxies in front encode all the same.
#[test]
fn an_encoded_response_is_named_with_its_encoding() {
    let service = EchoService::start();
    for (encoding, body, found) in [
        ("br", &b"\x8b\x02\x80{}\x03"[..], "Content-Encoding: br"),
        ("gzip, br", b"no text", "Content-Encoding: gzip, br"),
        ("identity, x-gzip", b"\x1f\x8b", "identity, x-gzip"),
        ("utf-8", b"{\x00}\x00", ""),
        ("Identity", b"{\x00}\x00", ""),
    ] {
        let server = SocketServer::start(move |_| {
            let field = format!("Content-Encoding: {encoding}");
            Reply::Bytes(response("200 OK", &[&field], body))
        });
        let url = format!("http://{}", server.address());
        let other = ["--issuer=https://idp/", "--audience=a"];
        let of_auth_server = format!("{url}/auth");
        let of_jwks = format!("--jwks={url}/keys");
        let of_issuer = format!("--issuer-url={url}");
        for (plan, in_utf_16) in [
            (
                SidecarPlan::of_issuer(&service, [&*of_jwks, other[0], other[1]]),
                "UTF-16: it has to be UTF-8",
            ),
            (
                SidecarPlan::of_issuer(&service, [&*of_issuer, other[1]]),
                "a discovery document, and holds UTF-16: it has to be UTF-8",
            ),
            (
                SidecarPlan::new(&service, &of_auth_server),
                "not an auth server's at http",
            ),
        ] {
            let sidecar = plan.flags(NEVER).start();
            let line = sidecar.process().line_with("not fetched");
            has(line, if found.is_empty() { in_utf_16 } else { found });
        }
    }
    // An encoding that is named and not used is no reason.
    for encoding in ["utf-8", "identity", "", "gzip"] {
        let one = published("Keycloak");
        let set = one.jwks().into_bytes();
        let field = format!("Content-Encoding: {encoding}");
        one.replies(Reply::Bytes(response("200 OK", &[&field], &set)));
        assert_eq!(fetching(&service, &one).ready().readiness(), 200);
    }
}
