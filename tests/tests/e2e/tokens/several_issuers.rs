//! Several issuers behind one sidecar (`several_issuers.toml`, `docs/issuers.md`): each with its own
//! keys, audience, algorithms and claims, and none at the mercy of another.

mod checks;
mod discovery;
mod issuer_rules;
mod key_sources;
mod outages;
pub(crate) mod published;
mod reloads;
mod user_prefixes;

use serde_json::Value;
use tests::actors::auth_server::{USER_DETAILS, admin_get};
use tests::actors::issuer::IssuerToken;
use tests::actors::sidecar::{NEVER, Sidecar};
use tests::services::echo_service::EchoService;
use tests::services::fake_auth_server::json_response;
use tests::tables::Verdicts;
use tests::wait;
use tests::wire::message::Message;

use self::published::{AWAY, Issuers, Published};

/// Returns the difference between a token's verdict and its row.
fn difference(
    sidecar: &Sidecar,
    service: &EchoService,
    token: &IssuerToken,
    text: &str,
) -> Option<String> {
    service.take_requests();
    let bearer = sidecar.bearing(text);
    // The second time from the token cache.
    let responses = [
        bearer.get("/list"),
        bearer.get(USER_DETAILS),
        bearer.get("/list"),
    ];
    let verdicts = responses.each_ref().map(|response| response.verdict());
    let requests = service.requests();
    if token.expect != "accepted" {
        let good = verdicts == [token.expect.as_str(); 3] && requests.is_empty();
        return (!good).then(|| format!("{verdicts:?}, not {}", token.expect));
    }
    if verdicts != ["200"; 3] {
        return Some(format!("{verdicts:?}"));
    }
    let expected: Value = serde_json::from_str(&token.user).expect("`user` is JSON");
    let mut details = responses[1].json()["data"].clone();
    let fields = details.as_object_mut().expect("the current user");
    let count = fields.len();
    fields.retain(|_, value| !value.is_null());
    let mut users: Vec<Value> = requests.iter().map(user).collect();
    users.push(details);
    let good = count == 27 && users == [(); 3].map(|()| expected.clone());
    (!good).then(|| format!("{users:?}, details of {count}, not {expected}"))
}

/// Sends each token of each issuer.
fn every_token_gets_its_verdict(issuers: &Issuers, sidecar: &Sidecar) {
    let mut verdicts = Verdicts::default();
    for one in &issuers.published {
        tokens_get_their_verdicts(one, sidecar, &issuers.service, &mut verdicts);
    }
    verdicts.conclude();
}

/// Returns what the explanation of a token lacks.
fn unexplained(sidecar: &Sidecar, words: &[String], token: &str) -> Option<String> {
    if words.is_empty() {
        return None;
    }
    let field = format!("Authorization: Bearer {token}");
    let said = sidecar.explain(&["/orders/list"], &[field]).stdout;
    let lacks = words.iter().find(|word| !said.contains(*word))?;
    Some(format!("explain does not say {lacks:?}:\n{said}"))
}

/// Sends each token of an issuer.
pub(crate) fn tokens_get_their_verdicts(
    one: &Published,
    sidecar: &Sidecar,
    service: &EchoService,
    verdicts: &mut Verdicts,
) {
    for token in &one.row.token {
        let text = one.signed(token);
        let difference = difference(sidecar, service, token, &text)
            .or_else(|| unexplained(sidecar, &token.explains, &text));
        verdicts.row(&format!("{}: {}", one.row.name, token.name), difference);
    }
}

fn user(request: &Message) -> Value {
    let header = request.header("X-Current-User").join(" and ");
    serde_json::from_str(&header).unwrap_or_default()
}

#[test]
fn each_token_is_verified_by_its_own_issuer_alone() {
    let issuers = Issuers::publish(&[]);
    let sidecar = issuers.start();
    every_token_gets_its_verdict(&issuers, &sidecar);
    for one in &issuers.published {
        let fetches = one.server.retrievals().len();
        assert_eq!(fetches, 1, "{}: no token caused a fetch", one.row.name);
    }
}

#[test]
fn listed_tenants_of_one_key_set_are_accepted() {
    let issuers = Issuers::publish(&["entra-v2"]);
    let entra = issuers.of("entra-v2");
    let tenants = entra.table().replace(
        "issuer = \"https://login.microsoftonline.com/8a2f/v2.0\"",
        "issuer-pattern = \"https://login.microsoftonline.com/{tid}/v2.0\"\ntenants = [\"8a2f\", \"ffff\"]",
    );
    let rule = "[[rule]]\npaths = ['/list']\nissuer = ['entra-v2']\n";
    let config = tenants + rule;
    let sidecar = issuers.plan_with(&config).flags(NEVER).ready();
    let of_tenant = |tenant: &str| {
        let token = entra.token("an access token of version 2");
        entra.signed(&token.with_payload(|payload| payload.replace("8a2f", tenant)))
    };
    for (tenant, expected) in [
        ("8a2f", "200"),
        ("ffff", "200"),
        ("0000", "401 token_issuer"),
        ("{tid}", "401 token_issuer"),
        ("8a2f/v2.0/../ffff", "401 token_issuer"),
    ] {
        let bearer = sidecar.bearing(&of_tenant(tenant));
        for _ in 0..2 {
            assert_eq!(bearer.verdict("/list"), expected, "{tenant}");
        }
    }
    assert_eq!(entra.server.retrievals().len(), 1, "one key set");
}

#[test]
fn metrics_and_explanations_name_the_issuer() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    issuers.of("cluster").replies(json_response(AWAY, "{}"));
    let sidecar = issuers.plan().flags(NEVER).ready();
    wait::until("the first fetch of both", || {
        let metrics = admin_get(sidecar.admin(), "/metrics").text();
        let lines = [
            "postern_sidecar_keys_available{issuer=\"shop\"} 1",
            "postern_sidecar_keys_available{issuer=\"cluster\"} 0",
            "postern_sidecar_key_refreshes_total{outcome=\"failed\",issuer=\"shop\"} 0",
            "postern_sidecar_key_refreshes_total{outcome=\"replaced\",issuer=\"shop\"} 1",
        ];
        let is_there = |line: &&str| metrics.lines().any(|found| found == *line);
        lines.iter().all(is_there)
    });
    let shop = issuers.of("shop");
    for (token, outcome, issuer) in [
        ("its own token", "verified", Value::from("shop")),
        (
            "for the audience of another issuer",
            "token_audience",
            Value::from("shop"),
        ),
        (
            "in the name of an unknown realm",
            "token_issuer",
            Value::Null,
        ),
    ] {
        let arguments = ["/orders/list", "--json", "--expect", outcome];
        let bearer = format!("Authorization: Bearer {}", shop.signed(shop.token(token)));
        let end = sidecar.explain(&arguments, &[bearer]);
        assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
        let explanation: Value = serde_json::from_str(&end.stdout).unwrap();
        assert_eq!(explanation["issuer"][0], issuer, "{token}");
        let has_keys = explanation["keys"][0] != "none";
        assert_eq!(has_keys, !issuer.is_null(), "{token}");
    }
}
