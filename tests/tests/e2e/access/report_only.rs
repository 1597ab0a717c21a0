//! Report-only mode: the requests that it lets through, those that it does not, and its end.

use tests::actors::auth_server::admin_get;
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::sidecar::check;
use tests::actors::stack::ForgedStack;
use tests::keys::SigningType;
use tests::tables::Verdicts;
use tests::token_rows::{KeySetShape, Policy, TokenRow, TokenTable};
use tests::wait;
use tests::wire::clock::{self, within_one_second};
use tests::wire::message::Message;
use tests::wire::raw_client::{HANDSHAKE, exchange};

use crate::e2e::configuration::command_line::{CONFIG, SIDECAR};

const WOULD_REJECT: &str = "Postern-Would-Reject";

/// Returns the flags of report-only mode until this many seconds from now.
fn reporting(seconds: i64) -> Vec<String> {
    let until = clock::now() + seconds;
    vec![
        "--enforce=report".to_owned(),
        format!("--report-until={until}"),
    ]
}

fn reporting_stack(seconds: i64, flags: &[&str]) -> ForgedStack {
    let mode = reporting(seconds);
    ForgedStack::with(|plan| plan.flags(mode).flags(flags))
}

/// Sends a request with these lines to both, and returns the verdict of enforcement, and what
/// the other one reported or rejected.
fn both(
    [enforcing, reporting]: [&ForgedStack; 2],
    lines: impl Fn(&ForgedStack, i64) -> Vec<Vec<u8>>,
    query: Option<&str>,
) -> [String; 2] {
    let target = match query {
        Some(query) => format!("/orders/list?{query}"),
        None => "/orders/list".to_owned(),
    };
    let send = |stack: &ForgedStack| -> (Message, Vec<Message>) {
        within_one_second(|now| {
            stack.service.take_requests();
            let request = Request::new("GET", target.as_str()).lines(lines(stack, now));
            let bytes = request.bytes("service.example");
            let response = exchange(stack.sidecar.address(), "GET", &bytes);
            (response, stack.service.take_requests())
        })
    };
    let (response, _) = send(enforcing);
    let expected = response.verdict();
    let (response, seen) = send(reporting);
    let found = match &seen[..] {
        [seen] if response.status() == 200 => match &seen.header(WOULD_REJECT)[..] {
            [] if seen.header("x-current-user").len() == 1 => "200".to_owned(),
            [reason] if seen.header("x-current-user").is_empty() => {
                let (status, _) = expected.split_once(' ').unwrap_or_default();
                format!("{status} {reason}")
            }
            other => format!("{other:?} with a user, or neither"),
        },
        [] => response.verdict(),
        more => format!("{} requests and {}", more.len(), response.verdict()),
    };
    [expected, found]
}

/// Runs every row of the token table in both modes, which have to give the same code. What is not
/// about the token is rejected in both.
#[test]
fn each_row_of_the_token_table_has_one_code_in_both_modes() {
    let mut verdicts = Verdicts::default();
    let rows = TokenTable::load().unwrap().token;
    for policy in Policy::ALL {
        let flags = policy.flags();
        let enforcing = ForgedStack::with_flags(flags);
        let reporting = reporting_stack(600, flags);
        let of_this_run = |row: &&TokenRow| {
            row.is_tried_with(SigningType::Ecdsa)
                && row.policy == policy
                && row.keys == KeySetShape::Nameless
        };
        for row in rows.iter().filter(of_this_run) {
            let lines = |stack: &ForgedStack, now| row.header_lines(&stack.forge, "unnamed", now);
            let [expected, found] = both([&enforcing, &reporting], lines, row.query.as_deref());
            let difference = (expected != found).then(|| format!("{expected}, but {found}"));
            verdicts.row(&format!("{} ({policy:?})", row.name), difference);
        }
    }
    assert!(verdicts.checked() >= 150, "the table has lost rows");
    verdicts.conclude();
}

#[test]
fn what_is_not_about_the_token_is_rejected_all_the_same() {
    let stack = reporting_stack(600, &[]);
    let response = |bytes: &str| {
        let response = exchange(stack.sidecar.address(), "GET", bytes.as_bytes());
        response.verdict()
    };
    let lengths = "Content-Length: 1\r\nContent-Length: 1\r\n";
    for (target, lines, expected) in [
        ("/orders/../x", "", "400 path_not_canonical"),
        ("/orders/a%zz", "", "400 path_not_canonical"),
        ("/orders/a", lengths, "400 request_framing"),
        ("/orders/current/user/details", "", "401 token_missing"),
        ("/orders/socket", HANDSHAKE, "401 token_missing"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        assert_eq!(response(&request), expected, "{target}");
    }
    let long = "a".repeat(17_000);
    let request =
        format!("GET /orders/a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {long}\r\n\r\n");
    assert_eq!(response(&request), "431 authorization_too_large");
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn a_rule_is_reported_with_the_verified_user_and_counted() {
    let until = clock::now() + 600;
    let stack = ForgedStack::configured(&format!(
        "enforce = 'report'\nreport-until = '{until}'\n\
         [[rule]]\nname = 'admin'\npaths = ['/admin/**']\nscope = ['admin']\n"
    ));
    let sidecar = &stack.sidecar;
    let client = sidecar.bearing(&stack.token());
    let forged = "Postern_Would-Reject: token_expired";
    let response = client.send(&client.request("GET", "/admin/7").line(forged));
    assert_eq!(response.status(), 200);
    let seen = stack.service.take_requests().pop().unwrap();
    assert_eq!(seen.header("x-current-user").len(), 1);
    assert_eq!(seen.header(WOULD_REJECT), ["insufficient_scope"]);
    assert!(!seen.header_lines().contains(&forged.to_owned()));
    for (line, value) in [
        ("postern_sidecar_rule_rejections_total{rule=\"admin\"}", 1),
        (
            "postern_sidecar_requests_total{outcome=\"reported\",reason=\"insufficient_scope\",code=\"2xx\"}",
            1,
        ),
        ("postern_sidecar_enforcing", 0),
    ] {
        // A request is counted after its response.
        wait::until(line, || (sidecar.metric(line)? == value).then_some(()));
    }
    let page = admin_get(sidecar.admin(), "/").text();
    has(&page, "Not enforcing until ");
    let log = wait::until("the reminder", || {
        let log = sidecar.process().output();
        log.contains("insufficient_scope").then_some(log)
    });
    has(&log, "requests without a valid token reach the service");
    has(&log, "reported");
    has(&log, "cause=\"rule admin\"");
    // Requests in order are as before.
    let response = client.send(&client.request("GET", "/a").line(forged));
    assert_eq!(response.status(), 200);
    let seen = stack.service.take_requests().pop().unwrap();
    assert!(seen.header(WOULD_REJECT).is_empty());
    assert_eq!(seen.header("x-current-user").len(), 1);
    // Enforcement comes back with a reload.
    stack.sidecar.reload(
        "[[rule]]\nname = 'admin'\npaths = ['/admin/**']\nscope = ['admin']\n",
        "applied",
    );
    assert_eq!(client.verdict("/admin/7"), "403 insufficient_scope");
    let spellings = [forged, "Postern-Would-Reject: token_expired"];
    let response = client.send(&client.request("GET", "/a").lines(spellings));
    assert_eq!(response.status(), 200);
    let seen = stack.service.last_request().header_lines().concat();
    assert!(!seen.contains("token_expired"), "{seen}");
    assert_eq!(sidecar.metric("postern_sidecar_enforcing"), Some(1));
}

#[test]
fn report_only_mode_ends_by_itself() {
    let config = |seconds: i64| {
        let until = clock::now() + seconds;
        format!("enforce = 'report'\nreport-until = '{until}'\n")
    };
    let stack = ForgedStack::configured(&config(600));
    let client = stack.sidecar.anonymous();
    assert_eq!(client.status("/a"), 200);
    stack.sidecar.reload(&config(3), "applied");
    wait::until("enforcement", || {
        client.verdict("/a") == "401 token_missing"
    });
    let enforcing = stack.sidecar.metric("postern_sidecar_enforcing");
    assert_eq!(enforcing, Some(1));
    let users = stack.service.requests();
    assert!(
        users
            .iter()
            .all(|seen| seen.header("x-current-user").is_empty())
    );
}

/// A pod that starts again must not go down because a date is past.
#[test]
fn a_start_after_the_end_enforces_and_logs_it() {
    let until = clock::now() - 60;
    let config = format!("enforce = 'report'\nreport-until = '{until}'\n");
    let stack = ForgedStack::configured(&config);
    let sidecar = &stack.sidecar;
    let anonymous_verdict = || sidecar.anonymous().verdict("/a");
    assert_eq!(anonymous_verdict(), "401 token_missing");
    assert_eq!(sidecar.bearing(&stack.token()).verdict("/a"), "200");
    assert_eq!(stack.service.requests().len(), 1);
    assert_eq!(sidecar.metric("postern_sidecar_enforcing"), Some(1));
    let warnings = sidecar.until_logged("WARN sidecar: --report-until");
    let log = sidecar.process().stderr();
    assert!(warnings == 1 && log.contains("is past"), "{log}");
    assert!(!log.contains("reach the service"), "{log}");
    // The rest of the file is reloaded as ever.
    stack
        .sidecar
        .reload(&format!("public-path = ['/a']\n{config}"), "applied");
    assert_eq!(anonymous_verdict(), "200");
}

#[test]
fn the_end_is_required_and_thirty_days_ahead_or_less() {
    let checked = |flags: &[&str]| check("", &[&SIDECAR[1..], flags].concat());
    let now = clock::now();
    let until = |seconds: i64| format!("--report-until={}", now + seconds);
    let (past, soon, far) = (until(-1), until(3600), until(31 * 24 * 3600));
    let report = "--enforce=report";
    for (flags, named) in [
        (&[report, &past][..], "is past"),
        (&[report, &far], "more than 30 days"),
        (&[&soon], "only with --enforce report"),
        (
            &[report, &soon, "--pod-ip=10.0.0.1", "--require-unexposed"],
            "--require-unexposed",
        ),
        (&[report, &soon, "--strict"], "--strict: --enforce report"),
    ] {
        let end = checked(flags);
        assert_eq!(end.code, Some(CONFIG), "{flags:?}: {}", end.stderr);
        assert!(end.stderr.contains(named), "{flags:?}: {}", end.stderr);
    }
    let end = checked(&[report, &soon]);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    has(&end.stdout, "# warning: --enforce report");
}

#[test]
fn explain_gives_the_code_of_enforcement() {
    let stack = reporting_stack(600, &[]);
    let explain = |flags: &[&str]| {
        let arguments = [flags, &["/orders/a"]].concat();
        let end = stack.sidecar.explain::<&str>(&arguments, &[]);
        assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
        end.stdout
    };
    let text = explain(&["--expect", "reported"]);
    for line in [
        "verdict   reported: 401 token_missing",
        "service   GET /orders/a",
    ] {
        has(&text, line);
    }
    let later = (clock::now() + 700).to_string();
    let text = explain(&["--at", &later, "--expect", "token_missing"]);
    has(&text, "verdict   rejected: 401 token_missing");
    // No proof that the path needs a token, while requests without one reach the service.
    let arguments = ["--expect", "token_missing", "/orders/a"];
    let unmet = stack.sidecar.explain::<&str>(&arguments, &[]);
    assert_eq!(unmet.code, Some(1), "{}", unmet.stdout);
    has(&unmet.stderr, "found reported");
}

#[test]
fn requests_without_a_token_become_pass_list_lines() {
    let stack = reporting_stack(600, &[]);
    let client = stack.sidecar.anonymous();
    for path in ["/products/1", "/products/2?page=hush", "/7"] {
        assert_eq!(client.status(path), 200, "{path}");
    }
    stack.sidecar.bearing("a.b.c").get("/contact");
    let lines =
        "public-path = [\n# \"GET /*\",  # 1 requests\n  \"GET /products/*\",  # 2 requests\n]\n";
    let admin = stack.sidecar.admin();
    wait::until("all requests", || {
        admin_get(admin, "/suggest").text() == lines
    });
    let page = admin_get(admin, "/").text();
    has(&page, lines);
    let end = check(lines, &SIDECAR[1..]);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
}

/// It is the rejection of a missing token by another name.
#[test]
fn a_document_of_no_authorization_server_is_reported_too() {
    let flags = ["--resource", "http://localhost/orders"];
    let stack = reporting_stack(60, &flags);
    let request = Request::new("GET", "/.well-known/oauth-authorization-server");
    let response = exchange(stack.sidecar.address(), "GET", &request.bytes("localhost"));
    assert_eq!(response.status(), 200);
    let seen = stack.service.last_request();
    assert_eq!(seen.header(WOULD_REJECT), ["not_found"]);
}
