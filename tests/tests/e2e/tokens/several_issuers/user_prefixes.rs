//! Users of several issuers (`user_prefixes.toml`): the service tells them apart, and the claims of
//! one issuer never stand for those of another.

use std::fs;

use serde::Deserialize;
use tests::actors::auth_server::{AuthServerPlan, USER_DETAILS};
use tests::actors::client::Client;
use tests::actors::expect::has;
use tests::actors::issuer::IssuerRow;
use tests::actors::process::Finished;
use tests::actors::sidecar::{NEVER, SidecarPlan};
use tests::actors::token_forge::payload_of;
use tests::tables::{Verdicts, load};
use tests::wire::h2_client::H2Client;
use tests::wire::message::Message;

use super::key_sources::Pods;
use super::published::{Issuers, check};
use super::{every_token_gets_its_verdict, user};

/// `user_prefixes.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrefixTable {
    issuer: Vec<IssuerRow>,
    start: Vec<Start>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    why: String,
    tables: Vec<String>,
    #[serde(default)]
    flags: bool,
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default)]
    says: String,
}

pub(crate) fn issuers() -> Issuers {
    Issuers::of_rows(load::<PrefixTable>("user_prefixes.toml").issuer)
}

#[test]
fn users_of_two_issuers_are_never_the_same_user() {
    let issuers = issuers();
    let sidecar = issuers.start();
    every_token_gets_its_verdict(&issuers, &sidecar);
}

#[test]
fn details_access_log_and_http_2_have_the_prefix_too() {
    for (field, logged) in [("id", "partner:1"), ("account", "partner:admin")] {
        let issuers = issuers();
        let log = ["--access-log", "all", "--log-format", "json"];
        let plan = issuers.plan().flags(NEVER).flags(log);
        let plan = plan.flags(["--access-log-user", field]);
        let sidecar = plan.with_all_keys();
        let token = issuers.of("partner").own();
        for _ in 0..2 {
            let details = sidecar.bearing(&token).get(USER_DETAILS).json();
            assert_eq!(details["data"][field], logged);
        }
        let bearer = format!("Bearer {token}");
        let client = H2Client::connect(sidecar.address());
        let request = client.request("GET", "/orders/by-http-2", &[("authorization", &bearer)]);
        let response = client.send(request, &[]).unwrap();
        assert_eq!(response.verdict(), "200");
        let requests = issuers.service.requests();
        assert_eq!(user(&requests[0])[field], logged);
        let process = sidecar.process();
        let line = process.json_line("path", "/orders/by-http-2");
        assert_eq!(line["user"], logged, "{line}");
    }
}

/// Returns the claim headers that the service gets.
fn claim_headers(issuers: &Issuers, client: &Client) -> Vec<String> {
    issuers.service.take_requests();
    let request = client.request("GET", "/list");
    let forged = [
        "X-Roles: root",
        "x_roles: root",
        "X-Partner: root",
        "X-Sub: root",
    ];
    client.send(&request.lines(forged));
    let requests = issuers.service.take_requests();
    let names = ["x-roles", "x_roles", "x-partner", "x-sub"];
    let of = |request: &Message| names.map(|name| request.header(name)).concat();
    requests.iter().flat_map(of).collect()
}

#[test]
fn a_claim_header_of_a_table_is_for_its_tokens_alone() {
    let issuers = issuers();
    let plan = issuers.plan().public_paths(["/list"]);
    let public = plan.flags(NEVER).with_all_keys();
    assert_eq!(claim_headers(&issuers, &public.anonymous()), [""; 0]);
    let sidecar = issuers.start();
    for (name, expected) in [("users", ["buyer", "1"]), ("partner", ["guest", "1"])] {
        let client = sidecar.bearing(&issuers.of(name).own());
        // The second time from the token cache.
        for _ in 0..2 {
            assert_eq!(claim_headers(&issuers, &client), expected, "{name}");
        }
    }
}

fn table(name: &str, prefix: Option<&str>) -> String {
    let prefix = prefix.map(|prefix| format!("user-prefix = '{prefix}'\n"));
    let source = match name {
        "members" => "issuer = 'auth'\nauth-server = true\n".to_owned(),
        "pods" => "issuer = 'kubernetes:///'\naudience = ['a']\ntoken-file = 'TOKEN'\n".to_owned(),
        "mapped-pods" => {
            table("pods", None).replace("[[issuer]]\nname = 'pods'\n", "")
                + "claim = { id = 'uid' }\n"
        }
        name => {
            format!("issuer = 'https://{name}/'\naudience = ['a']\njwks = 'https://{name}/keys'\n")
        }
    };
    format!(
        "[[issuer]]\nname = '{name}'\n{source}{}",
        prefix.unwrap_or_default()
    )
}

/// Returns the outcome of `check` for the tables, of which some have one line more.
fn start(row: &Start, issuers: &Issuers, more: &[(&str, &str)]) -> Finished {
    let token_file = issuers.home.path().join("token");
    fs::write(&token_file, issuers.of("cluster").own()).unwrap();
    let tables = row.tables.iter().map(|text| match text.split_once('=') {
        Some((name, prefix)) => table(name, Some(prefix)),
        None => {
            let line = more.iter().find(|(name, _)| name == text);
            table(text, None)
                + &line
                    .map(|(_, line)| format!("{line}\n"))
                    .unwrap_or_default()
        }
    });
    let has_own = row.flags || row.tables.iter().any(|table| table.starts_with("members"));
    let own = "auth-server = 'http://127.0.0.1:1/auth'\napp-id = 'a'\n";
    let config = if has_own { own } else { "" }.to_owned() + &tables.collect::<String>();
    let config = config.replace("TOKEN", &token_file.display().to_string());
    let flags: &[&str] = match row.flags {
        true => &["--app-secret=s", "--issuer=auth"],
        false => &["--app-secret=s"],
    };
    check(&config, flags)
}

#[test]
fn every_table_says_its_prefix_or_the_start_names_the_lines() {
    let issuers = Issuers::publish(&["cluster"]);
    let mut verdicts = Verdicts::default();
    for row in load::<PrefixTable>("user_prefixes.toml").start {
        let end = start(&row, &issuers, &[]);
        let starts = row.lines.is_empty() && row.says.is_empty();
        let lines = row.lines.join(", ");
        let is_good = match starts {
            true => end.code == Some(0),
            false => {
                end.code == Some(78)
                    && end.stderr.lines().count() == 1
                    && end.stderr.trim_end().ends_with(&lines)
                    && end.stderr.contains(&row.says)
            }
        };
        let difference = (!is_good).then(|| format!("exit {:?}: {}", end.code, end.stderr));
        verdicts.row(&row.why, difference);
        // With the lines that it prints it starts.
        if let Some((_, lines)) = end.stderr.split_once("; add ") {
            let lines = lines.trim_end().split(", ").map(|line| {
                let (line, table) = line.split_once("` to ").expect("a line for a table");
                (table, line.trim_start_matches('`'))
            });
            let end = start(&row, &issuers, &lines.collect::<Vec<_>>());
            verdicts.row(&row.why, (end.code != Some(0)).then_some(end.stderr));
        }
    }
    verdicts.conclude();
}

#[test]
fn beside_a_cluster_no_other_id_begins_with_system() {
    for prefix in ["", "user-prefix = \"pods:\"\n"] {
        let issuers = Issuers::publish(&["cluster", "shop"]);
        let (pods, shop) = (Pods::of(&issuers), issuers.of("shop"));
        let config = shop.table().replace("\"shop:\"", "\"\"") + &pods.table + prefix;
        let plan = issuers.plan_with(&config).flags(NEVER);
        let sidecar = plan.with_all_keys();
        assert_eq!(sidecar.verdict_of(&pods.token), "200");
        let requests = issuers.service.take_requests();
        let id = user(&requests[0])["id"].to_string();
        has(&id, "system:serviceaccount:shop:batch");
        for (id, account, expected) in [
            (
                "system:serviceaccount:shop:batch",
                "zofie",
                "401 token_user",
            ),
            ("system:", "zofie", "401 token_user"),
            ("SYSTEM:admin", "zofie", "401 token_user"),
            ("\u{17f}ystem:admin", "zofie", "401 token_user"),
            ("5e", "system:admin", "401 token_user"),
            ("systematic", "system", "200"),
        ] {
            let token = shop.token("its own token").with_payload(|payload| {
                let payload = payload.replace("\"5e\"", &format!("\"{id}\""));
                payload.replace("\"zofie\"", &format!("\"{account}\""))
            });
            let response = sidecar.bearing(&shop.signed(&token)).get("/list");
            assert_eq!(response.verdict(), expected, "{prefix}{id} {account}");
        }
    }
}

#[test]
fn explanation_and_check_show_the_prefix() {
    let issuers = issuers();
    let sidecar = issuers.start();
    let explain = |token: &str, expected: &str| {
        let arguments = ["/orders/list", "--expect", expected];
        let end = sidecar.explain(&arguments, &[format!("Authorization: Bearer {token}")]);
        assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
        end.stdout
    };
    let text = explain(&issuers.of("partner").own(), "verified");
    assert!(
        text.contains("\"id\":\"partner:1\"") && text.contains("X-Partner: 1"),
        "{text}"
    );
    let users = issuers.of("users");
    let text = explain(&users.signed(users.token("the prefix alone")), "token_user");
    has(&text, "user-prefix");
    let end = check(&issuers.tables(), &[]);
    has(&end.stdout, "user-prefix = \"partner:\"");
}

#[test]
fn the_auth_server_of_the_flags_keeps_the_ids_of_its_users() {
    let issuers = Issuers::publish(&["shop"]);
    let auth_server = AuthServerPlan::new().ready();
    let token = auth_server.login();
    let id = payload_of(&token)["userId"].as_str().unwrap().to_owned();
    let table = "[[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\n";
    for (own, expected) in [
        (String::new(), id.clone()),
        (format!("{table}user-prefix = ''\n"), id.clone()),
        (format!("{table}user-prefix = 'm:'\n"), format!("m:{id}")),
    ] {
        let is_in_flags = own.is_empty();
        let plan = SidecarPlan::new(&issuers.service, &auth_server.url()).flags(NEVER);
        let plan = plan.config(&(own + &issuers.tables()));
        let sidecar = match is_in_flags {
            true => plan.environment("POSTERN_ISSUER", "auth").with_all_keys(),
            false => plan.with_all_keys(),
        };
        for token in [&issuers.of("shop").own(), &token] {
            assert_eq!(sidecar.verdict_of(token), "200");
        }
        let requests = issuers.service.take_requests();
        assert_eq!(user(&requests[1])["id"], expected);
    }
}
