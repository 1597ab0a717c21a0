//! `data/pass_list.toml` and `data/canonical_paths.toml`: every row through a real sidecar over raw
//! sockets; `crates/http` tries them alone.

use serde::Deserialize;
use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::client::Request;
use tests::actors::stack::ForgedStack;
use tests::tables::template;
use tests::tables::{self, PathClass, PathGroup, PathRow, PathTable, Verdicts};
use tests::wire::raw_client::exchange;

const TABLES: [&str; 2] = ["pass_list.toml", "canonical_paths.toml"];

fn groups() -> Vec<PathGroup> {
    TABLES
        .iter()
        .flat_map(|file| tables::load::<PathTable>(file).group)
        .collect()
}

/// Sends every row over a raw socket, and compares the sidecar's response and the service's
/// request.
#[test]
fn contract_4_4_the_path_tables_through_the_sidecar() {
    let mut verdicts = Verdicts::default();
    for group in groups() {
        let context = group.context.trim_start_matches('/');
        let stack = ForgedStack::with(|plan| plan.app_name(context).public_paths(&group.patterns));
        let token = stack.token();
        for row in &group.row {
            let difference = observe(&stack, row, &token).err();
            verdicts.row(
                &format!("{} [{}] ({})", row.path, group.name, row.why),
                difference,
            );
        }
    }
    verdicts.conclude();
}

fn observe(stack: &ForgedStack, row: &PathRow, token: &str) -> Result<(), String> {
    let found = [None, Some(token)].map(|token| outcome(stack, row, token));
    let as_it_was = || template::fill(&row.path, |_| None);
    let forwarded = row
        .forwarded_as
        .clone()
        .map_or_else(as_it_was, String::into_bytes);
    let forwarded = forwarded.escape_ascii().to_string();
    let (missing, rejected) = ("401 token_missing", "400 path_not_canonical");
    let is_user = row.path.contains("/current/user/details");
    let expected = match row.expect {
        PathClass::Pass => [&*forwarded, &forwarded],
        PathClass::Token if is_user => [missing, "the user"],
        PathClass::Token => [missing, &forwarded],
        PathClass::Rejected => [rejected, rejected],
    };
    let by_parser = |found: &String| [rejected, "400 request_malformed"].contains(&&**found);
    let good = match row.rejected_by_parser {
        true => found.iter().all(by_parser),
        false => found == expected,
    };
    let difference = || format!("{found:?}, not {expected:?}");
    good.then_some(()).ok_or_else(difference)
}

/// Returns the target that the service received, or the sidecar's response.
fn outcome(stack: &ForgedStack, row: &PathRow, token: Option<&str>) -> String {
    let bearer = token.map(|token| format!("Authorization: Bearer {token}"));
    let request = Request::new("GET", template::fill(&row.path, |_| None)).lines(bearer);
    stack.service.take_requests();
    let bytes = request.bytes("service.example");
    let response = exchange(stack.sidecar.address(), "GET", &bytes);
    match &stack.service.take_requests()[..] {
        [seen] if response.status() == 200 => seen.target().escape_ascii().to_string(),
        [] if response.text().contains("\"account\":\"alice\"") => "the user".to_owned(),
        [] => response.verdict(),
        more => format!("{}, and {} requests", response.verdict(), more.len()),
    }
}

/// The same table against the other program of the one interceptor. The paths do not exist: a
/// request without need of a token, or with one, gets a 404.
#[test]
fn contract_4_4_the_canonical_path_table_at_the_auth_server() {
    let mut verdicts = Verdicts::default();
    for group in tables::load::<PathTable>("canonical_paths.toml").group {
        let server = AuthServerPlan::new()
            .context(&group.context)
            .flags(["--signing-type", "ecdsa"]);
        let passes: Vec<String> = group
            .patterns
            .iter()
            .map(|pattern| format!("--public-path={pattern}"))
            .collect();
        let server = server.flags(&passes).ready();
        let token = server.login();
        for row in &group.row {
            let difference = check_row(&server, row, &token).err();
            verdicts.row(
                &format!("{} [{}] ({})", row.path, group.name, row.why),
                difference,
            );
        }
    }
    verdicts.conclude();
}

fn check_row(server: &AuthServer, row: &PathRow, token: &str) -> Result<(), String> {
    let verdict_of = |credentials: Option<&str>| {
        let request = Request::new("GET", template::fill(&row.path, |_| None));
        let request = request.lines(credentials);
        exchange(server.address(), "GET", &request.bytes("a")).verdict()
    };
    let observed = (
        verdict_of(None),
        verdict_of(Some(&format!("Authorization: Bearer {token}"))),
    );
    let user_details = row.path.contains("/current/user/details");
    let expected = match row.expect {
        PathClass::Pass => ("404 not_found", "404 not_found"),
        PathClass::Token if user_details => ("401 token_missing", "200"),
        PathClass::Token => ("401 token_missing", "404 not_found"),
        PathClass::Rejected => ("400 path_not_canonical", "400 path_not_canonical"),
    };
    let by_parser = ("400 request_malformed", "400 request_malformed");
    let observed = (observed.0.as_str(), observed.1.as_str());
    let is_rejected = row.rejected_by_parser || row.rejected_by_auth_server;
    let good = observed == expected || (is_rejected && observed == by_parser);
    good.then_some(())
        .ok_or_else(|| format!("{observed:?}, not {expected:?}"))
}

/// `request_targets.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetTable {
    row: Vec<TargetRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetRow {
    target: String,
    /// `public`, `token`, or status and reason.
    expect: String,
    /// The target that the service gets, if it is another.
    sent: Option<String>,
    host: Option<String>,
    why: String,
}

#[test]
fn request_targets_hold_what_the_table_says() {
    let stack = ForgedStack::with_public([""; 0]);
    let bearer = format!("Authorization: Bearer {}\r\n", stack.token());
    let mut verdicts = Verdicts::default();
    for row in tables::load::<TargetTable>("request_targets.toml").row {
        let sent = row.sent.as_ref().unwrap_or(&row.target);
        let forwarded = format!("{sent} {}", row.host.as_deref().unwrap_or("a"));
        let outcome = |token: &str| {
            let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n{token}\r\n", row.target);
            stack.service.take_requests();
            let response = exchange(stack.sidecar.address(), "GET", request.as_bytes());
            match stack.service.take_requests().pop() {
                Some(seen) => {
                    let target = String::from_utf8(seen.target()).unwrap();
                    format!("{target} {}", seen.header("host").concat())
                }
                None => response.verdict(),
            }
        };
        let expected = match &*row.expect {
            "public" => [&*forwarded, &*forwarded],
            "token" => ["401 token_missing", &*forwarded],
            rejected => [rejected, rejected],
        };
        let found = [outcome(""), outcome(&bearer)];
        verdicts.row(
            &row.target,
            (found != expected).then(|| format!("{found:?}: {}", row.why)),
        );
    }
    verdicts.conclude();
}
