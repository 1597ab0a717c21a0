//! `token-header` of an issuer (`token_headers.toml`): tokens of proxies in front, each in its own
//! header and nowhere else, and never towards the service.

use serde::Deserialize;
use serde_json::Value;
use tests::actors::auth_server::USER_DETAILS;
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::issuer::IssuerRow;
use tests::actors::sidecar::{NEVER, Sidecar};
use tests::tables::{Verdicts, load};
use tests::wire::clock;
use tests::wire::message::Message;
use tests::wire::raw_client::exchange;

use crate::e2e::tokens::several_issuers::published::Issuers;

/// `token_headers.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderTable {
    issuer: Vec<IssuerRow>,
    row: Vec<HeaderRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderRow {
    #[serde(default = "get")]
    method: String,
    /// Below the context path.
    #[serde(default = "list")]
    path: String,
    lines: Vec<String>,
    expect: String,
    why: String,
}

fn get() -> String {
    "GET".to_owned()
}

fn list() -> String {
    "/list".to_owned()
}

const FLAGS: [&str; 7] = [
    "--public-path=/public/**",
    "--optional-auth-path=/feed/**",
    "--token-cookie=session",
    "--cookie-origin=https://app.example",
    "--websocket-token",
    NEVER[0],
    NEVER[1],
];

/// Puts the tokens in, in place of `{ISSUER}` and `{ISSUER:NAME}`.
fn filled(issuers: &Issuers, line: &str) -> String {
    let mut line = line.replace("{long}", &"a".repeat(17_000));
    for one in &issuers.published {
        let own = one.own();
        let name = &one.row.name;
        let padded: Vec<String> = own.split('.').map(padded).collect();
        line = line.replace(&format!("{{{name}}}"), &own);
        line = line.replace(&format!("{{{name}:padded}}"), &padded.join("."));
        for token in &one.row.token {
            let placeholder = format!("{{{name}:{}}}", token.name);
            line = line.replace(&placeholder, &one.signed(token));
        }
    }
    line
}

/// Returns base64 with padding.
fn padded(part: &str) -> String {
    let missing = part.len().next_multiple_of(4) - part.len();
    format!("{part}{}", "=".repeat(missing))
}

fn send(issuers: &Issuers, sidecar: &Sidecar, row: &HeaderRow) -> (Message, Vec<Message>) {
    let lines = row.lines.iter().map(|line| filled(issuers, line));
    let request = Request::new(&row.method, format!("/orders{}", row.path)).lines(lines);
    issuers.service.take_requests();
    let bytes = request.bytes("orders.example");
    let response = exchange(sidecar.address(), &row.method, &bytes);
    (response, issuers.service.take_requests())
}

fn started(flags: &[&str]) -> (Issuers, Sidecar, Vec<HeaderRow>) {
    let table: HeaderTable = load("token_headers.toml");
    let issuers = Issuers::of_rows(table.issuer);
    let sidecar = issuers.plan().flags(FLAGS).flags(flags).with_all_keys();
    (issuers, sidecar, table.row)
}

fn has_token_header(request: &Message) -> bool {
    request.header_lines().iter().any(|line| {
        let name = line.split(':').next().unwrap_or_default();
        let plain = name
            .to_lowercase()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        ["cf-access-jwt-assertion", "x-goog-iap-jwt-assertion"].contains(&plain.as_str())
    })
}

fn found(response: &Message, seen: &[Message]) -> String {
    match seen {
        [] => response.verdict(),
        [one] if has_token_header(one) => "the token header reached the service".to_owned(),
        [one] => {
            let user = one.header("x-current-user").concat();
            let user: Value = serde_json::from_str(&user).unwrap_or_default();
            format!(
                "{} {}",
                response.status(),
                user["id"].as_str().unwrap_or("-")
            )
        }
        more => format!("{} requests", more.len()),
    }
}

#[test]
fn each_row_of_the_token_headers_gets_its_verdict() {
    let (issuers, sidecar, rows) = started(&[]);
    let mut verdicts = Verdicts::default();
    for row in &rows {
        // The second time from the token cache.
        for time in ["first", "again"] {
            let (response, seen) = send(&issuers, &sidecar, row);
            let found = found(&response, &seen);
            let difference = (found != row.expect).then(|| format!("{found}, not {}", row.expect));
            verdicts.row(&format!("{}, {time}", row.why), difference);
        }
    }
    verdicts.conclude();
}

#[test]
fn a_token_header_is_stripped_in_report_only_mode_too() {
    let until = format!("--report-until={}", clock::now() + 600);
    let (issuers, sidecar, rows) = started(&["--enforce=report", &until]);
    let mut forwarded = 0;
    for row in rows.iter().filter(|row| !row.expect.starts_with("200")) {
        let (_, seen) = send(&issuers, &sidecar, row);
        for request in &seen {
            assert!(!has_token_header(request), "{}", row.why);
            assert!(request.header("x-current-user").is_empty(), "{}", row.why);
        }
        forwarded += seen.len();
    }
    assert!(forwarded >= 15, "{forwarded}");
}

#[test]
fn a_token_header_gives_the_current_user_too() {
    let (issuers, sidecar, _) = started(&[]);
    let client = sidecar.anonymous();
    let line = format!("Cf-Access-Jwt-Assertion: {}", issuers.of("access").own());
    let response = client.send(&client.request("GET", USER_DETAILS).line(line));
    assert_eq!(response.json()["data"]["email"], "ada@example.com");
}

#[test]
fn explanations_name_the_token_header() {
    let (issuers, sidecar, _) = started(&[]);
    let token = issuers.of("access").own();
    for (line, outcome, text) in [
        (
            format!("Cf-Access-Jwt-Assertion: {token}"),
            "verified",
            "from      cf-access-jwt-assertion\nissuer    access\n",
        ),
        (
            format!("X-Goog-Iap-Jwt-Assertion: {token}"),
            "token_issuer",
            "from      x-goog-iap-jwt-assertion\n",
        ),
        (format!("Authorization: Bearer {token}"), "token_issuer", ""),
    ] {
        let end = sidecar.explain(&["/orders/list", "--expect", outcome], &[line]);
        assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
        has(&end.stdout, text);
        let signature = token.rsplit('.').next().unwrap();
        assert!(!end.stdout.contains(signature), "{}", end.stdout);
    }
}
