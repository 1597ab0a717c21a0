//! Tokens for applications (RFC 6749 §4.4), the discovery documents, and what users and applications
//! were given.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServer, AuthServerPlan, SECRET_KEY, USER_DETAILS, admin_get};
use tests::actors::client::{FORM, Request};
use tests::actors::expect::has;
use tests::actors::sessions::{PASSWORD, TOKEN};
use tests::actors::sidecar::SidecarPlan;
use tests::actors::token_forge::{header_of, payload_of};
use tests::actors::users_file::UsersFile;
use tests::services::echo_service::EchoService;
use tests::tables::template;
use tests::tables::{self, TokenRequestRow, TokenRequestTable, Verdicts};
use tests::wait;
use tests::wire::message::Message;

const GRANT: &str = "grant_type=client_credentials";

/// An auth server with the applications `jobs`, which obtains tokens, and `sidecar`, which does not.
pub(super) struct Installation {
    pub(super) server: AuthServer,
    pub(super) jobs: String,
    pub(super) sidecar: String,
}

impl Installation {
    fn start(flags: &[&str]) -> Self {
        Self::of(AuthServerPlan::new().flags(flags))
    }

    pub(super) fn of(plan: AuthServerPlan) -> Self {
        let server = plan.flags(["--store-poll-interval", "1"]).ready();
        let sidecar = server.done(&["application", "add", "--app-id", "sidecar"]);
        let add = ["application", "add", "--app-id=jobs", "--audience=orders"];
        let claims = [
            "--scope=orders:read orders:write",
            "--claim=tenant=t1",
            "--claim=roles:=[\"batch\"]",
        ];
        let jobs = server.done(&[&add[..], &claims].concat());
        let installation = Self {
            server,
            jobs,
            sidecar,
        };
        wait::until("the server to know the applications", || {
            let known = "postern_auth_server_registered_applications";
            installation.server.metric(known) == Some(2)
        });
        installation
    }

    /// Requests a token for `jobs`.
    fn request(&self, more: &str) -> Message {
        self.server.grant("jobs", &self.jobs, more)
    }
}

/// Waits until requests of `jobs` have this status.
fn until_status(installation: &Installation, status: u16) -> Message {
    wait::until("the server to take the change over", || {
        let response = installation.request("");
        (response.status() == status).then_some(response)
    })
}

#[test]
fn rfc_9068_an_application_obtains_what_it_was_given() {
    let installation = Installation::start(&["--token-lifetime", "60", "--audience", "common"]);
    let response = installation.request("&scope=orders%3Aread");
    let mut body = response.json();
    let token = response.access_token();
    body["access_token"] = Value::Null;
    assert_eq!(
        body,
        json!({"access_token": null, "token_type": "Bearer", "expires_in": 60, "scope": "orders:read"})
    );
    assert_eq!(response.header("cache-control"), ["no-store"]);
    assert_eq!(response.header("pragma"), ["no-cache"]);
    let header = header_of(&token);
    let found = (&header["typ"], &header["alg"]);
    assert_eq!(found, (&json!("at+jwt"), &json!("RS256")));
    let mut claims = payload_of(&token);
    let [iat, exp] = ["iat", "exp"].map(|name| claims[name].as_i64().unwrap());
    assert_eq!(exp - iat, 60);
    assert!(claims["jti"].as_str().is_some_and(|id| id.len() == 22));
    for name in ["iat", "nbf", "exp", "jti"] {
        claims[name] = Value::Null;
    }
    assert_eq!(
        claims,
        json!({
            "iss": "auth", "sub": "jobs", "client_id": "jobs", "aud": ["orders"], "scope": "orders:read",
            "username": "jobs", "userId": "jobs", "extraInfo": {"userType": "application"},
            "tenant": "t1", "roles": ["batch"], "iat": null, "nbf": null, "exp": null, "jti": null
        })
    );
    let all = installation.request("").json();
    assert_eq!(all["scope"], "orders:read orders:write");
}

#[test]
fn rfc_8707_a_resource_narrows_the_audience_within_the_grant() {
    let server = AuthServerPlan::new()
        .flags(["--store-poll-interval", "1"])
        .ready();
    let (mcp, slash) = ("https://api.example/mcp", "https://api.example/orders/");
    let others = [
        "urn:example:stock",
        "orders",
        "https://api.example/mcp#tools",
    ];
    let add = [
        "application",
        "add",
        "--app-id=agent",
        "--audience",
        mcp,
        "--audience",
        slash,
    ];
    let others = others.iter().flat_map(|other| ["--audience", other]);
    let add: Vec<_> = add.into_iter().chain(others).collect();
    let secret = server.done(&add);
    wait::until("the server to know the application", || {
        server.grant("agent", &secret, "").status() == 200
    });
    let encoded = |text: &str| {
        text.replace(':', "%3A")
            .replace('/', "%2F")
            .replace('#', "%23")
    };
    let request = |resources: &[&str]| {
        let parameter = |resource: &&str| format!("&resource={}", encoded(resource));
        let parameters: String = resources.iter().map(parameter).collect();
        server.grant("agent", &secret, &parameters)
    };
    let all = [
        mcp,
        slash,
        "urn:example:stock",
        "orders",
        "https://api.example/mcp#tools",
    ];
    for (resources, expected) in [
        (&[][..], &all[..]),
        (&[""], &all),
        (&[mcp], &[mcp]),
        (&["urn:example:stock"], &["urn:example:stock"]),
        (&[slash, mcp], &[slash, mcp]),
        (&[mcp, mcp, ""], &[mcp]),
    ] {
        let token = request(resources).access_token();
        assert_eq!(payload_of(&token)["aud"], json!(expected), "{resources:?}");
    }
    for resources in [
        // The text counts, as for every `aud`.
        &["https://api.example/mcp/"][..],
        &["https://api.example/orders"],
        &["https://API.example/mcp"],
        &["https://api.example:443/mcp"],
        &["https://api.example/mcp?x"],
        &["https://api.example/"],
        // Absolute, and without a fragment, even where an operator gave one.
        &["orders"],
        &["/mcp"],
        &["https://api.example/mcp#tools"],
        &[mcp, "https://api.example/other"],
    ] {
        let found = found(&request(resources));
        assert_eq!(
            found, "400 invalid_target resource_not_granted",
            "{resources:?}"
        );
    }
}

#[test]
fn every_row_of_the_token_requests_gets_its_response() {
    let installation = Installation::start(&[]);
    let server = &installation.server;
    let admin = server.done(&["application", "add", "--app-id=admin", "--audience=orders"]);
    wait::until("the server to know admin", || {
        server.grant("admin", &admin, "").status() == 400
    });
    let user = server.login();
    let fill = |text: &str| {
        template::fill(text, |name| {
            let value = match name {
                "secret" => installation.jobs.clone(),
                "sidecar_secret" => installation.sidecar.clone(),
                "admin_secret" => admin.clone(),
                "basic" => STANDARD.encode(format!("jobs:{}", installation.jobs)),
                "token" => user.clone(),
                _ => return None,
            };
            Some(value.into_bytes())
        })
    };
    let mut verdicts = Verdicts::default();
    for row in tables::load::<TokenRequestTable>("token_requests.toml").request {
        let response = server.anonymous().send(&token_request(&row, fill));
        let found = found(&response);
        let leaked = row.expect != "200" && response.text().contains("access_token");
        let difference = (leaked || found != row.expect)
            .then(|| format!("{found}, not {} ({})", row.expect, row.why));
        verdicts.row(&row.name, difference);
    }
    assert!(verdicts.checked() >= 25, "the table has lost rows");
    assert_eq!(installation.request("").status(), 200, "it still serves");
    verdicts.conclude();
}

pub(super) fn token_request(row: &TokenRequestRow, fill: impl Fn(&str) -> Vec<u8>) -> Request {
    let request = Request::new(&row.method, fill(&row.target));
    let mut lines = row.headers.iter();
    let names_type = lines.any(|line| line.starts_with("Content-Type:"));
    let form = (row.body.is_some() && !names_type).then_some(FORM);
    let request = request.lines(form);
    let request = request.lines(row.headers.iter().map(|line| fill(line)));
    match &row.body {
        Some(body) => request.body(fill(body)),
        None => request,
    }
}

pub(super) fn found(response: &Message) -> String {
    let (status, body) = (response.status(), response.json());
    if status == 200 {
        return "200".to_owned();
    }
    if body["error"].is_string() {
        let challenge = response.header("www-authenticate").concat();
        let expected = match status {
            401 => r#"Basic realm="postern""#,
            _ => "",
        };
        assert_eq!(challenge, expected, "{status} {body}");
    }
    let (error, reason) = match body["error"].as_str() {
        Some(error) => (error, &body["reason"]),
        None => ("envelope", &body["data"]["reason"]),
    };
    format!("{status} {error} {}", reason.as_str().unwrap_or_default())
}

#[test]
fn a_sidecar_accepts_an_application_and_names_it_upstream() {
    let installation = Installation::start(&[]);
    let service = EchoService::start();
    let url = installation.server.url();
    let sidecar = |audience: &str| {
        SidecarPlan::new(&service, &url)
            .application("sidecar", &installation.sidecar)
            .flags(["--issuer", "auth", "--audience", audience])
            .flags(["--claim-header", "X-Scope=scope"])
            .ready()
    };
    let token = installation.request("&scope=orders%3Aread").access_token();
    let orders = sidecar("orders");
    let machine = orders.bearing(&token);
    assert_eq!(machine.verdict("/list"), "200");
    let request = service.last_request();
    assert_eq!(request.header("x-scope"), ["orders:read"]);
    let user: Value = serde_json::from_str(&request.header("x-current-user")[0]).unwrap();
    let expected = json!({
        "id": "jobs", "clientId": "jobs", "account": "jobs", "userType": "application"
    });
    assert_eq!(user, expected);
    let details = machine.get(USER_DETAILS).json()["data"].clone();
    assert_eq!(details["clientId"], "jobs");
    let stock = sidecar("stock");
    let without = SidecarPlan::new(&service, &url)
        .application("sidecar", &installation.sidecar)
        .app_name("stock")
        .ready();
    for sidecar in [&stock, &without] {
        let elsewhere = sidecar.bearing(&token).get("/list");
        assert_eq!(elsewhere.verdict(), "401 token_audience");
    }
    let of_a_user = without.bearing(&installation.server.login()).get("/list");
    assert_eq!(of_a_user.verdict(), "200");
    let own = installation.server.anonymous().bearing(&token);
    assert_eq!(own.get(USER_DETAILS).json()["data"]["clientId"], "jobs");
}

#[test]
fn a_new_user_with_the_name_of_an_application_ends_its_tokens() {
    for flags in [&[][..], &["--id", "jobs"]] {
        let users = UsersFile::with("ada", "enchantress");
        let plan = AuthServerPlan::new().flags(["--users", &users.location()]);
        let installation = Installation::of(plan);
        let token = installation.request("").access_token();
        let bearer = installation.server.anonymous().bearing(&token);
        assert_eq!(bearer.status(USER_DETAILS), 200);
        let account = if flags.is_empty() { "jobs" } else { "eve" };
        users.add(account, "enchantress", flags);
        wait::until("the end of the token", || {
            bearer.verdict(USER_DETAILS) == "401 token_revoked"
        });
        let expected = "400 unauthorized_client grant_not_allowed";
        assert_eq!(found(&installation.request("")), expected);
    }
}

#[test]
fn a_grant_is_replaced_listed_and_taken_away() {
    let installation = Installation::start(&[]);
    let server = &installation.server;
    let grant = |flags: &[&str]| {
        server.done(&[&["application", "grant", "--app-id", "jobs"], flags].concat())
    };
    let listed = || {
        let rows = server.done(&["application", "list"]);
        let row: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
        assert_eq!(row["id"], "jobs");
        row["grant"].clone()
    };
    assert_eq!(listed()["scope"], "orders:read orders:write");
    grant(&["--audience", "orders,stock", "--scope", "stock:read"]);
    let token = wait::until("the new scope", || {
        let response = installation.request("");
        (response.json()["scope"] == "stock:read").then(|| response.access_token())
    });
    let claims = payload_of(&token);
    assert_eq!(claims["aud"], json!(["orders", "stock"]));
    assert_eq!(claims.get("tenant"), None);
    let expected = json!({"audience": ["orders", "stock"], "scope": "stock:read"});
    assert_eq!(listed(), expected);

    grant(&["--none"]);
    assert_eq!(
        found(&until_status(&installation, 400)),
        "400 unauthorized_client grant_not_allowed"
    );
}

#[test]
fn wrong_secrets_are_slowed_down_and_the_right_one_is_not() {
    let installation = Installation::start(&["--login-rate-limit", "9"]);
    let limited = wait::until("the limit of wrong secrets", || {
        let response = installation.server.grant("jobs", "guess", "");
        (response.status() == 429).then_some(response)
    });
    let expected = "429 temporarily_unavailable too_many_attempts";
    assert_eq!(found(&limited), expected);
    assert_eq!(limited.header("retry-after").len(), 1);
    let key = installation.server.anonymous().get(SECRET_KEY);
    assert_eq!(key.verdict(), "429 too_many_attempts");
    assert_eq!(installation.request("").status(), 200);
}

#[test]
fn logins_and_token_requests_share_the_limit_of_an_address() {
    let users = UsersFile::with("ada", "enchantress");
    let server = AuthServerPlan::new()
        .flags(["--users", &users.location(), "--login-rate-limit", "1"])
        .ready();
    let first = server.anonymous().post_form(TOKEN, GRANT);
    assert_eq!(first.status(), 401, "no credentials, nothing counted");
    let statuses = [(); 2].map(|()| server.grant("jobs", "guess", "").status());
    assert_eq!(statuses, [401, 429]);
    assert_eq!(server.login_as("ada", PASSWORD).status(), 429);
}

#[test]
fn each_token_request_is_counted_and_written_down() {
    let installation = Installation::start(&["--log-format", "json"]);
    let server = &installation.server;
    let client = server.anonymous();
    let body = format!("{GRANT}&client_id=jobs&client_secret={}", installation.jobs);
    let request = client
        .request("POST", TOKEN)
        .line(FORM)
        .line("X-Request-Id: nightly-1");
    let token = client.send(&request.body(body)).access_token();
    server.grant("jobs", "hush-hush", "");
    let magic = "grant_type=magic&client_id=jobs&client_secret=hush-hush";
    client.post_form(TOKEN, magic);

    let lines = wait::until("the audit lines", || {
        let mut lines = server.process().json_lines();
        lines.retain(|line| {
            let event = line["event"].as_str();
            event.is_some_and(|event| event.starts_with("token_"))
        });
        let rejected = lines
            .iter()
            .filter(|line| line["event"] == "token_rejected");
        (rejected.count() >= 2).then_some(lines)
    });
    let issued = lines
        .iter()
        .find(|line| line["request_id"] == "nightly-1")
        .unwrap();
    let (header, claims) = (header_of(&token), payload_of(&token));
    for (field, expected) in [
        ("event", &json!("token_issued")),
        ("grant", &json!("client_credentials")),
        ("app_id", &json!("jobs")),
        ("outcome", &json!("ok")),
        ("scope", &claims["scope"]),
        ("jti", &claims["jti"]),
        ("kid", &header["kid"]),
    ] {
        assert_eq!(&issued[field], expected, "{field}: {issued}");
    }
    assert!(!server.process().output().contains("hush-hush"));
    let metrics = admin_get(server.admin(), "/metrics").text();
    for (grant, outcome) in [
        ("client_credentials", "ok"),
        ("client_credentials", "application_unknown"),
        ("other", "grant_unsupported"),
    ] {
        let labels = format!("{{grant=\"{grant}\",outcome=\"{outcome}\"}}");
        let name = format!("postern_auth_server_tokens_issued_total{labels}");
        assert!(metrics.contains(&name), "{name} is not in\n{metrics}");
    }
}

#[test]
fn a_user_s_scope_audience_roles_and_claims_reach_the_service() {
    let users = UsersFile::with("bob", "enchantress");
    let flags = [
        "--role=admin",
        "--role=ops",
        "--scope=orders:write orders:read",
        "--claim=region=eu",
        "--claim=level:=7",
    ];
    users.add("ada", "enchantress", &flags);
    let end = users.command("add", "eve", &["--claim=sub=1", "--password-stdin"], "x");
    assert_eq!(end.code, Some(64), "{}", end.stderr);
    let own = "the claim sub is this server's own";
    has(&end.stderr, own);
    // No flag sets an audience.
    let text = std::fs::read_to_string(users.path()).unwrap();
    let text = text.replace("[user.claims]", "audience = [\"orders\"]\n[user.claims]");
    std::fs::write(users.path(), text).unwrap();
    let server = AuthServerPlan::new()
        .flags(["--users", &users.location(), "--audience", "stock"])
        .ready();
    let [ada, bob] = ["ada", "bob"].map(|account| server.token_of(account, "enchantress"));
    let claims = payload_of(&ada);
    for (name, expected) in [
        ("aud", json!(["orders"])),
        ("scope", json!("orders:read orders:write")),
        ("roles", json!(["admin", "ops"])),
        ("region", json!("eu")),
        ("level", json!(7)),
    ] {
        assert_eq!(claims[name], expected, "{name}");
    }
    assert_eq!(header_of(&ada)["typ"], "JWT");
    let claims = payload_of(&bob);
    let names = claims.as_object().unwrap().keys();
    let usual = "aud exp extraInfo iat iss jti nbf nickName sub userId username";
    assert!(names.eq(usual.split(' ')), "{claims}");
    let service = EchoService::start();
    let sidecar = SidecarPlan::new(&service, &server.url())
        .flags(["--audience", "orders", "--claim-header", "X-Roles=roles"])
        .ready();
    assert_eq!(sidecar.verdict_of(&ada), "200");
    assert_eq!(service.last_request().header("x-roles"), ["admin,ops"]);
    assert_eq!(sidecar.verdict_of(&bob), "401 token_audience");
}
