//! Tokens of other issuers than the auth server (`issuers.toml`, `docs/issuers.md`): the keys that
//! count, their algorithms, and the claims that become the user.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tests::auth_server::{AuthServer, USER_DETAILS};
use tests::certificates::{Authority, write_private};
use tests::client::verdict;
use tests::clock;
use tests::documented::command_under;
use tests::echo_service::EchoService;
use tests::fake_auth_server::json_response;
use tests::issuer::{Issuer, IssuerRow, IssuerTable, IssuerToken};
use tests::keys::{SigningKey, SigningType};
use tests::message::Message;
use tests::programs::Program;
use tests::sidecar::{EVERY_SECOND, NEVER, Sidecar, SidecarPlan};
use tests::socket_server::{Reply, SocketServer, response};
use tests::tables::{Verdicts, load};
use tests::wait;

const DOCUMENT: &str = "docs/issuers.md";

fn row(name: &str) -> IssuerRow {
    let table: IssuerTable = load("issuers.toml");
    let mut rows = table.issuer.into_iter();
    rows.find(|row| row.name == name).expect("a row")
}

/// Starts a server that always sends the reply in `reply`.
fn serving(reply: Reply) -> (SocketServer, Arc<Mutex<Reply>>) {
    let reply = Arc::new(Mutex::new(reply));
    let current = Arc::clone(&reply);
    let server = SocketServer::start(move |_| current.lock().unwrap().clone());
    (server, reply)
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
        let other = replaced.iter().find(|(name, _)| *name == flag);
        let value = other.map_or(value, |(_, value)| (*value).to_owned());
        flags.extend([flag, value]);
    }
    flags
}

fn start(service: &EchoService, flags: &[String]) -> Sidecar {
    SidecarPlan::of_issuer(service, flags).flags(NEVER).ready()
}

/// Starts the documented sidecar in front of an issuer of the table, and checks each token.
fn every_token_gets_its_verdict(name: &str) {
    let row = row(name);
    let issuer = Issuer::new(&row);
    let (server, _) = serving(json_response("200 OK", &issuer.jwks(&row)));
    let url = format!("http://{}/keys?realm=shop", server.address());
    let service = EchoService::start();
    let sidecar = start(&service, &documented(name, &[("--jwks-url", &url)]));
    let mut verdicts = Verdicts::default();
    for token in &row.token {
        let difference = difference(&sidecar, &service, token, &issuer);
        verdicts.row(&token.name, difference);
    }
    verdicts.conclude();
    let requests = server.requests();
    assert!(
        requests.len() <= 2,
        "a fetch at the start, and one for unknown keys"
    );
    for request in requests {
        assert_eq!(request.target(), b"/keys?realm=shop");
    }
}

fn difference(
    sidecar: &Sidecar,
    service: &EchoService,
    token: &IssuerToken,
    issuer: &Issuer,
) -> Option<String> {
    service.take_requests();
    let bearer = sidecar.bearing(&issuer.token(token, clock::now()));
    let (response, details) = (bearer.get("/list"), bearer.get(USER_DETAILS));
    if token.expect != "accepted" {
        let found = [verdict(&response), verdict(&details)];
        let reached = service.requests().len();
        return (found != [token.expect.as_str(); 2] || reached > 0).then(|| {
            format!(
                "{found:?}, not {}; {reached} reached the service",
                token.expect
            )
        });
    }
    if response.status() != 200 || details.status() != 200 {
        return Some(format!("{} {}", verdict(&response), verdict(&details)));
    }
    let expected: Value = serde_json::from_str(&token.user).expect("`user` is JSON");
    let header = service
        .last_request()
        .header("X-Current-User")
        .join(" and ");
    let header: Value = serde_json::from_str(&header).ok()?;
    let mut reported = details.json()["data"].clone();
    let fields = reported.as_object().map_or(0, serde_json::Map::len);
    if let Some(reported) = reported.as_object_mut() {
        reported.retain(|_, value| !value.is_null());
    }
    let good = header == expected && reported == expected && fields == 27;
    (!good).then(|| format!("header {header}, details {reported} of {fields}, not {expected}"))
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
fn every_algorithm_is_verified_by_the_documented_command() {
    every_token_gets_its_verdict("Several algorithms");
}

fn accepted<'r>(row: &'r IssuerRow, name: &str) -> &'r IssuerToken {
    row.token.iter().find(|token| token.name == name).unwrap()
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
    let row = row("Several algorithms");
    let issuer = Issuer::new(&row);
    let directory = tempfile::tempdir().unwrap();
    write_files(
        directory.path(),
        &issuer.jwks(&row),
        &issuer.public_pem("p256"),
    );
    for heading in [
        "By the issuer alone",
        "Keycloak",
        "Auth0",
        "Several algorithms",
        "A key set in a file",
        "A public key in a file",
    ] {
        let words = command_under(DOCUMENT, heading);
        let here = format!("{}/", directory.path().display());
        let words = words
            .iter()
            .map(|word| word.replace("/etc/postern/", &here));
        let check = Program::Sidecar
            .command()
            .arguments(["check"])
            .arguments(words.skip(2));
        let end = check.run();
        assert_eq!(end.code, Some(0), "{heading}: {}", end.stderr);
        // The output is a configuration file with the same meaning.
        let file = directory.path().join("postern.toml");
        std::fs::write(&file, &end.stdout).unwrap();
        let again = Program::Sidecar
            .command()
            .arguments(["check", "--config"])
            .arguments([&file])
            .run();
        assert_eq!(
            (again.code, again.stdout),
            (Some(0), end.stdout),
            "{heading}: {}",
            again.stderr
        );
    }
}

#[test]
fn keys_from_files_are_read_at_the_tick_and_survive_breaks() {
    let row = row("Several algorithms");
    let (one, other) = (Issuer::new(&row), Issuer::new(&row));
    let token = accepted(&row, "ES256");
    for (heading, file, old, new) in [
        (
            "A key set in a file",
            "jwks.json",
            one.jwks(&row),
            other.jwks(&row),
        ),
        (
            "A public key in a file",
            "issuer.pem",
            one.public_pem("p256"),
            other.public_pem("p256"),
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(file);
        std::fs::write(&path, old).unwrap();
        let file_path = path.display().to_string();
        let service = EchoService::start();
        let mut flags = documented(
            heading,
            &[
                ("--jwks-file", &file_path),
                ("--public-key-file", &file_path),
            ],
        );
        if !flags.contains(&"--algorithms".to_owned()) {
            flags.extend(["--algorithms".to_owned(), "ES256".to_owned()]);
        }
        let plan = SidecarPlan::of_issuer(&service, &flags).flags(EVERY_SECOND);
        let sidecar = plan.ready();
        let bearing = |issuer: &Issuer| sidecar.bearing(&issuer.token(token, clock::now()));
        assert_eq!(bearing(&one).get("/list").status(), 200, "{heading}");
        assert_eq!(bearing(&other).get("/list").status(), 401, "{heading}");

        let private = SigningKey::generate(SigningType::Ecdsa).private();
        for broken in ["", "<html>", &private, &"x".repeat(70_000)] {
            std::fs::write(&path, broken).unwrap();
            let before = sidecar.process().stderr().matches("WARN").count();
            wait::until("the failure in the log", || {
                sidecar.process().stderr().matches("WARN").count() > before
            });
            assert_eq!(bearing(&one).get("/list").status(), 200, "{heading}");
        }
        std::fs::write(&path, new).unwrap();
        wait::until("the new key", || {
            bearing(&other).get("/list").status() == 200
        });
        assert_eq!(bearing(&one).get("/list").status(), 401, "{heading}");
        assert_eq!(sidecar.readiness(), 200);
    }
}

#[test]
fn a_file_of_keys_that_cannot_be_used_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    write_private(&path, &SigningKey::generate(SigningType::Rsa).private());
    let service = EchoService::start();
    for (flag, file) in [
        ("--jwks-file", path.to_str().unwrap()),
        ("--public-key-file", path.to_str().unwrap()),
        ("--jwks-file", "/nowhere"),
        ("--public-key-file", "/nowhere"),
    ] {
        let flags = [flag, file, "--issuer", "i", "--audience", "a"];
        let end = SidecarPlan::of_issuer(&service, flags).fails();
        assert_eq!(end.code, Some(78), "{}", end.stderr);
        let line = end.stderr.lines().last().unwrap_or_default();
        assert!(line.contains(flag) && line.contains(file), "{line}");
        assert!(!end.stderr.contains("BEGIN"), "{}", end.stderr);
    }
}

/// Returns a sidecar that fetches the keys of the row's issuer from `server` every second.
fn polling(service: &EchoService, server: &SocketServer) -> SidecarPlan {
    fetching(service, server).flags(EVERY_SECOND)
}

fn fetching(service: &EchoService, server: &SocketServer) -> SidecarPlan {
    let url = format!("http://{}/keys", server.address());
    let flags = documented("Several algorithms", &[("--jwks-url", &url)]);
    SidecarPlan::of_issuer(service, flags)
}

fn wait_for_fetches(server: &SocketServer, more: usize) -> Vec<Message> {
    let before = server.requests().len();
    wait::until("the sidecar to ask again", || {
        let requests = server.requests();
        (requests.len() >= before + more).then_some(requests)
    })
}

fn jwks_response(fields: &[&str], set: &str) -> Reply {
    Reply::Bytes(response("200 OK", fields, set.as_bytes()))
}

fn rsa_key_of_exponent_1() -> String {
    let modulus = format!("{}w", "_".repeat(341));
    json!({"keys": [{"kty": "RSA", "kid": "x", "n": modulus, "e": "AQ"}]}).to_string()
}

#[test]
fn the_key_set_is_fetched_by_version_and_survives_errors() {
    let row = row("Several algorithms");
    let (issuer, untrusted) = (Issuer::new(&row), Issuer::new(&row));
    let set = issuer.jwks(&row);
    let (server, reply) = serving(jwks_response(&["ETag: \"v1\""], &set));
    let elsewhere = serving(json_response("200 OK", &untrusted.jwks(&row))).0;
    let service = EchoService::start();
    let sidecar = polling(&service, &server).ready();
    let token = accepted(&row, "EdDSA");
    let bearing = |issuer: &Issuer| sidecar.bearing(&issuer.token(token, clock::now()));

    *reply.lock().unwrap() = Reply::Bytes(response("304 Not Modified", &[], b""));
    let requests = wait_for_fetches(&server, 2);
    assert_eq!(requests[0].header("if-none-match"), [""; 0]);
    assert_eq!(requests.last().unwrap().header("if-none-match"), ["\"v1\""]);
    assert_eq!(bearing(&issuer).get("/list").status(), 200);

    let location = format!("Location: http://{}/keys", elsewhere.address());
    let padded = format!("{set}{}", " ".repeat(70_000));
    for (name, invalid) in [
        (
            "a redirect",
            Reply::Bytes(response("302 Found", &[&location], b"")),
        ),
        (
            "an error",
            json_response("500 Internal Server Error", &untrusted.jwks(&row)),
        ),
        ("no set", json_response("200 OK", "{}")),
        ("an empty set", json_response("200 OK", "{\"keys\":[]}")),
        (
            "no usable key",
            json_response("200 OK", "{\"keys\":[{\"kty\":\"XYZ\"}]}"),
        ),
        (
            "an RSA key with which nothing verifies",
            json_response("200 OK", &rsa_key_of_exponent_1()),
        ),
        (
            "two sets",
            json_response("200 OK", "{\"keys\":[],\"keys\":[]}"),
        ),
        ("a login page", json_response("200 OK", "<html>")),
        ("too long", json_response("200 OK", &padded)),
        (
            "half of it",
            Reply::BytesThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec()),
        ),
    ] {
        *reply.lock().unwrap() = invalid;
        wait_for_fetches(&server, 2);
        assert_eq!(bearing(&issuer).get("/list").status(), 200, "{name}");
        let rejected = bearing(&untrusted).get("/list");
        assert_eq!(verdict(&rejected), "401 token_signature", "{name}");
    }
    assert_eq!(elsewhere.requests().len(), 0, "redirects are not followed");
    assert_eq!(sidecar.readiness(), 200);

    *reply.lock().unwrap() = jwks_response(&[], &untrusted.jwks(&row));
    wait::until("the new keys", || {
        bearing(&untrusted).get("/list").status() == 200
    });
    assert_eq!(
        verdict(&bearing(&issuer).get("/list")),
        "401 token_signature"
    );
}

#[test]
fn a_fresh_response_is_kept_until_an_unknown_key() {
    let row = row("Keycloak");
    let issuer = Issuer::new(&row);
    let set = issuer
        .jwks(&row)
        .replace("FJ86GcF3jTbNLOco4NvZkUCIUmfYCqoqtOQeMfbhNlE", "former");
    let (server, reply) = serving(jwks_response(&["Cache-Control: max-age=3600"], &set));
    let url = format!("http://{}/keys", server.address());
    let service = EchoService::start();
    let flags = documented("Keycloak", &[("--jwks-url", &url)]);
    let plan = SidecarPlan::of_issuer(&service, flags).flags(EVERY_SECOND);
    let sidecar = plan.ready();
    let refreshes = || {
        let metrics = tests::auth_server::admin_get(sidecar.admin(), "/metrics").text();
        let lines = metrics
            .lines()
            .filter(|line| line.contains("key_refreshes_total{"));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        counts.sum::<u64>()
    };
    wait::until("three ticks", || refreshes() >= 4);
    assert_eq!(server.requests().len(), 1, "the response was fresh");

    *reply.lock().unwrap() = jwks_response(&[], &issuer.jwks(&row));
    let token = issuer.token(accepted(&row, "an access token of a user"), clock::now());
    assert_eq!(sidecar.bearing(&token).get("/list").status(), 200);
    assert_eq!(server.requests().len(), 2, "at once, not at the next tick");
}

#[test]
fn rules_for_other_issuers_hold_for_our_own_too() {
    let auth_server = AuthServer::start();
    let service = EchoService::start();
    let url = format!("{}/.well-known/jwks.json", auth_server.url());
    let flags = [
        "--jwks-url",
        &url,
        "--issuer",
        "auth",
        "--audience",
        "orders",
        "--claim",
        "id=userId",
        "--claim",
        "account=username",
        "--claim",
        "nickName=nickName",
        "--claim",
        "userType=/extraInfo/userType",
    ];
    let sidecar = SidecarPlan::of_issuer(&service, flags).ready();
    let response = sidecar.bearing(&auth_server.login()).get("/list");
    assert_eq!(verdict(&response), "401 token_audience");
}

#[test]
fn one_key_source_is_required_with_issuer_and_audience() {
    const ISSUER: [&str; 4] = ["--issuer", "i", "--audience", "a"];
    const AUTH_SERVER: [&str; 6] = [
        "--auth-server",
        "http://127.0.0.1:1/auth",
        "--app-id",
        "orders",
        "--app-secret",
        "s",
    ];
    let url = ["--jwks-url", "https://idp/keys"];
    let mut verdicts = Verdicts::default();
    for (arguments, codes, mentions) in [
        (vec![], &[78][..], "--auth-server"),
        (
            [&url[..], &ISSUER, &AUTH_SERVER].concat(),
            &[78],
            "--jwks-url",
        ),
        (
            [&url[..], &ISSUER, &["--jwks-file", "f"]].concat(),
            &[78],
            "--jwks-file",
        ),
        ([&url[..], &ISSUER[..2]].concat(), &[78], "--audience"),
        ([&url[..], &ISSUER[2..]].concat(), &[78], "--issuer"),
        (
            [&url[..], &ISSUER, &["--algorithms", "HS256"]].concat(),
            &[78],
            "--algorithms",
        ),
        (
            [&url[..], &ISSUER, &["--algorithms", "none"]].concat(),
            &[78],
            "--algorithms",
        ),
        (
            [&url[..], &ISSUER, &["--algorithms", ""]].concat(),
            &[78],
            "--algorithms",
        ),
        (
            [&url[..], &ISSUER, &["--signing-type", "rsa"]].concat(),
            &[78],
            "--signing-type",
        ),
        (
            [&url[..], &ISSUER, &["--app-id", "x"]].concat(),
            &[78],
            "--app-id",
        ),
        (
            [&url[..], &ISSUER, &["--claim", "nick=name"]].concat(),
            &[78],
            "--claim 'nick=name'",
        ),
        (
            [&url[..], &ISSUER, &["--claim", "id=a", "--claim", "id=b"]].concat(),
            &[78],
            "--claim 'id=b'",
        ),
        (
            [&url[..], &ISSUER, &["--auth-ca", "/nowhere"]].concat(),
            &[78],
            "--auth-ca '/nowhere'",
        ),
        (
            [&url[..], &ISSUER, &["--auth-client-cert", "c"]].concat(),
            &[78],
            "--auth-client-key",
        ),
        (
            [
                &["--jwks-url", "http://idp/keys"][..],
                &ISSUER,
                &["--auth-ca", "f"],
            ]
            .concat(),
            &[78],
            "--auth-ca",
        ),
        (
            [&["--jwks-url", "ftp://idp/keys"][..], &ISSUER].concat(),
            &[78],
            "--jwks-url",
        ),
        (
            [&AUTH_SERVER[..], &["--algorithms", "RS256"]].concat(),
            &[78],
            "--algorithms",
        ),
        (
            [&AUTH_SERVER[..], &["--claim", "id=sub"]].concat(),
            &[78],
            "--claim",
        ),
        (
            [&AUTH_SERVER[..], &["--auth-ca", "f"]].concat(),
            &[78],
            "--auth-ca",
        ),
    ] {
        let end = Program::Sidecar
            .command()
            .arguments(["check"])
            .arguments(&arguments)
            .run();
        let good = end.code.is_some_and(|code| codes.contains(&code))
            && end.stderr.lines().count() == 1
            && end.stderr.contains(mentions);
        let difference = format!("exit {:?}, {}", end.code, end.stderr);
        verdicts.row(&arguments.join(" "), (!good).then_some(difference));
    }
    verdicts.conclude();
}

#[test]
fn a_missing_key_set_is_fetched_before_the_next_tick() {
    let (server, reply) = serving(json_response("503 Service Unavailable", "{}"));
    let row = row("Several algorithms");
    let issuer = Issuer::new(&row);
    let service = EchoService::start();
    let sidecar = fetching(&service, &server).flags(NEVER).start();
    sidecar.until_logged("ERROR");
    *reply.lock().unwrap() = json_response("200 OK", &issuer.jwks(&row));
    let sidecar = sidecar.ready();
    let token = issuer.token(accepted(&row, "ES256"), clock::now());
    assert_eq!(verdict(&sidecar.bearing(&token).get("/list")), "200");
}

#[test]
fn without_keys_an_issuer_s_token_waits_and_the_start_goes_on() {
    let (server, reply) = serving(json_response("503 Service Unavailable", "{}"));
    let row = row("Several algorithms");
    let issuer = Issuer::new(&row);
    let service = EchoService::start();
    let sidecar = polling(&service, &server).start();
    let token = issuer.token(accepted(&row, "ES256"), clock::now());
    sidecar.until_logged("ERROR");
    let verdict_now = || verdict(&sidecar.bearing(&token).get("/list"));
    assert_eq!(verdict_now(), "503 auth_keys_unavailable");
    *reply.lock().unwrap() = json_response("200 OK", &json!({"keys": []}).to_string());
    wait_for_fetches(&server, 2);
    assert_eq!(verdict_now(), "503 auth_keys_unavailable");
    *reply.lock().unwrap() = json_response("200 OK", &issuer.jwks(&row));
    wait::until("the keys", || verdict_now() == "200");
}
