//! Several issuers behind one sidecar (`several_issuers.toml`, `docs/issuers.md`): each with its own
//! keys, audience, algorithms and claims, and none at the mercy of another.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::auth_server::{AuthServerPlan, USER_DETAILS, admin_get};
use tests::certificates::Authority;
use tests::client::verdict;
use tests::clock;
use tests::connect_proxy::ConnectProxy;
use tests::echo_service::EchoService;
use tests::fake_auth_server::json_answer;
use tests::issuer::{Issuer, IssuerRow, IssuerTable, IssuerToken};
use tests::message::Message;
use tests::process::{CommandLine, Finished};
use tests::programs::{Program, repository};
use tests::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::socket_server::{Reply, SocketServer, response};
use tests::tables::{Verdicts, load};
use tests::wait;

/// A schedule that never comes round within a test.
pub(super) const NEVER: [&str; 2] = ["--refresh-cron", "0 0 0 29 2 *"];
/// Keys that no issuer has.
const AWAY: &str = "503 Service Unavailable";

/// One issuer and the server of its key set.
pub(super) struct Published {
    pub(super) row: IssuerRow,
    issuer: Issuer,
    server: SocketServer,
    answer: Arc<Mutex<Reply>>,
}

impl Published {
    fn new(row: IssuerRow) -> Self {
        let issuer = Issuer::new(&row);
        let answer = Arc::new(Mutex::new(json_answer("200 OK", &issuer.jwks(&row))));
        let current = Arc::clone(&answer);
        let server = SocketServer::start(move |_| current.lock().unwrap().clone());
        Self {
            row,
            issuer,
            server,
            answer,
        }
    }

    fn replies(&self, reply: Reply) {
        *self.answer.lock().unwrap() = reply;
    }

    fn url(&self) -> String {
        format!("http://{}/keys", self.server.address())
    }

    fn table(&self) -> String {
        let members = self.row.config.replace("{{keys}}", &self.url());
        format!("[[issuer]]\nname = \"{}\"\n{members}\n", self.row.name)
    }

    fn token(&self, name: &str) -> &IssuerToken {
        let mut tokens = self.row.token.iter();
        tokens.find(|token| token.name == name).expect("a token")
    }

    pub(super) fn own(&self) -> String {
        let accepted = self
            .row
            .token
            .iter()
            .find(|token| token.expect == "accepted");
        self.issuer.token(accepted.unwrap(), clock::now())
    }

    pub(super) fn signed(&self, token: &IssuerToken) -> String {
        self.issuer.token(token, clock::now())
    }
}

/// The issuers of the table, a service, and the file of settings.
pub(super) struct Issuers {
    pub(super) published: Vec<Published>,
    pub(super) service: EchoService,
    home: TempDir,
}

impl Issuers {
    /// Publishes the issuers of these names, or all without one.
    fn publish(names: &[&str]) -> Self {
        let table: IssuerTable = load("several_issuers.toml");
        let is_one = |row: &IssuerRow| names.is_empty() || names.contains(&row.name.as_str());
        Self::of_rows(table.issuer.into_iter().filter(is_one))
    }

    pub(super) fn of_rows(rows: impl IntoIterator<Item = IssuerRow>) -> Self {
        Self {
            published: rows.into_iter().map(Published::new).collect(),
            service: EchoService::start(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn of(&self, name: &str) -> &Published {
        let mut published = self.published.iter();
        published
            .find(|one| one.row.name == name)
            .expect("an issuer")
    }

    pub(super) fn file(&self) -> PathBuf {
        self.home.path().join("sidecar.toml")
    }

    pub(super) fn tables(&self) -> String {
        self.published.iter().map(Published::table).collect()
    }

    /// Returns a sidecar with the tables of all issuers.
    pub(super) fn plan(&self) -> SidecarPlan {
        self.plan_with(&self.tables())
    }

    pub(super) fn plan_with(&self, config: &str) -> SidecarPlan {
        fs::write(self.file(), config).unwrap();
        let file = self.file().display().to_string();
        SidecarPlan::of_issuer(&self.service, ["--config", &file])
    }

    /// Starts a sidecar that has the keys of all issuers.
    pub(super) fn start(&self) -> Sidecar {
        let sidecar = self.plan().flags(NEVER).flags(["--ready", "all"]);
        sidecar.start().ready()
    }
}

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
    let answers = [
        bearer.get("/list"),
        bearer.get(USER_DETAILS),
        bearer.get("/list"),
    ];
    let verdicts = answers.each_ref().map(verdict);
    let requests = service.requests();
    if token.expect != "accepted" {
        let good = verdicts == [token.expect.as_str(); 3] && requests.is_empty();
        return (!good).then(|| format!("{verdicts:?}, not {}", token.expect));
    }
    if verdicts != ["200"; 3] {
        return Some(format!("{verdicts:?}"));
    }
    let expected: Value = serde_json::from_str(&token.user).expect("`user` is JSON");
    let users = requests.iter().map(user);
    let users: Vec<Value> = users.collect();
    (users != [expected.clone(), expected.clone()]).then(|| format!("{users:?}, not {expected}"))
}

fn user(request: &Message) -> Value {
    let header = request.header("X-Current-User").join(" and ");
    serde_json::from_str(&header).unwrap_or_default()
}

#[test]
fn each_token_is_verified_by_its_own_issuer_alone() {
    let issuers = Issuers::publish(&[]);
    let sidecar = issuers.start();
    let mut verdicts = Verdicts::default();
    for one in &issuers.published {
        for token in &one.row.token {
            let difference = difference(&sidecar, &issuers.service, token, &one.signed(token));
            verdicts.row(&format!("{}: {}", one.row.name, token.name), difference);
        }
    }
    verdicts.conclude();
    for one in &issuers.published {
        let fetches = one.server.requests().len();
        assert_eq!(fetches, 1, "{}: no token caused a fetch", one.row.name);
    }
}

#[test]
fn an_unknown_key_asks_its_own_issuer_alone() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let (shop, cluster) = (issuers.of("shop"), issuers.of("cluster"));
    let later = shop.issuer.jwks(&shop.row);
    let before = later.replace("key-1", "key-0");
    shop.replies(json_answer("200 OK", &before));
    let sidecar = issuers.start();
    shop.replies(json_answer("200 OK", &later));
    assert_eq!(verdict(&sidecar.bearing(&shop.own()).get("/list")), "200");
    assert_eq!(shop.server.requests().len(), 2);
    assert_eq!(cluster.server.requests().len(), 1);
}

#[test]
fn an_issuer_that_is_away_hurts_no_other() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let (shop, cluster) = (issuers.of("shop"), issuers.of("cluster"));
    cluster.replies(json_answer(AWAY, "{}"));
    let any = issuers.plan().flags(EVERY_SECOND).start().ready();
    let all = issuers
        .plan()
        .flags(EVERY_SECOND)
        .flags(["--ready", "all"])
        .start();
    for sidecar in [&any, &all] {
        wait::until("the keys of the other", || {
            (verdict(&sidecar.bearing(&shop.own()).get("/list")) == "200").then_some(())
        });
        let without = sidecar.bearing(&cluster.own()).get("/list");
        assert_eq!(verdict(&without), "503 auth_keys_unavailable");
        assert_eq!(without.header("retry-after").len(), 1);
    }
    assert_eq!((any.readiness(), all.readiness()), (200, 503));
    let report = admin_get(all.admin(), "/readyz").text();
    assert!(
        report.contains("cluster: ") && report.contains("shop: fetched"),
        "{report}"
    );
    cluster.replies(json_answer("200 OK", &cluster.issuer.jwks(&cluster.row)));
    let all = all.ready();
    assert_eq!(verdict(&all.bearing(&cluster.own()).get("/list")), "200");
    // It goes on with its last good keys.
    cluster.replies(json_answer(AWAY, "{}"));
    wait::until("a failed fetch", || {
        let failures = all
            .process()
            .stderr()
            .matches("keeping the last good one")
            .count();
        (failures > 0).then_some(())
    });
    assert_eq!(verdict(&all.bearing(&cluster.own()).get("/list")), "200");
}

#[test]
fn broken_keys_of_one_issuer_stop_no_start() {
    let issuers = Issuers::publish(&["shop"]);
    let broken = serving(json_answer("200 OK", "{\"keys\":[{\"kty\":\"RSA\"}]}"));
    let more = |members: &str| {
        format!(
            "{}[[issuer]]\nname = 'broken'\nissuer = 'b'\naudience = ['a']\n{members}\n",
            issuers.tables()
        )
    };
    let url = format!("jwks-url = 'http://{}/'", broken.address());
    for members in [
        url.as_str(),
        "jwks-file = '/nowhere/keys.json'",
        "public-key-file = '/nowhere/keys.pem'",
        "jwks-url = 'https://127.0.0.1:1/keys'\nca = '/nowhere/ca.pem'",
    ] {
        let sidecar = issuers
            .plan_with(&more(members))
            .flags(NEVER)
            .start()
            .ready();
        let answer = sidecar.bearing(&issuers.of("shop").own()).get("/list");
        assert_eq!(verdict(&answer), "200", "{members}");
        wait::until("the failure in the log", || {
            let said = sidecar.process().stderr();
            let mut lines = said.lines();
            lines
                .any(|line| line.contains("ERROR") && line.contains("broken"))
                .then_some(())
        });
    }
}

fn serving(reply: Reply) -> SocketServer {
    SocketServer::start(move |_| reply.clone())
}

#[test]
fn a_rotation_under_load_rejects_no_token_of_any_issuer() {
    let issuers = Issuers::publish(&["github-actions", "shop"]);
    let (rotating, other) = (issuers.of("github-actions"), issuers.of("shop"));
    let both: Value = serde_json::from_str(&rotating.issuer.jwks(&rotating.row)).unwrap();
    let only = |place: usize| json!({"keys": [both["keys"][place]]}).to_string();
    let token = rotating.token("the token of a workflow");
    // The table signs it with the second key.
    rotating.replies(json_answer("200 OK", &only(0)));
    let sidecar = issuers
        .plan()
        .flags(EVERY_SECOND)
        .flags(["--ready", "all"])
        .start()
        .ready();
    let (ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let rejected = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for one in [rotating, other] {
            let (sidecar, ended, sent, rejected) = (&sidecar, &ended, &sent, &rejected);
            scope.spawn(move || {
                // The first request of the rotating issuer names the key that is not known yet.
                while !ended.load(Ordering::Relaxed) {
                    let text = match one.row.name.as_str() {
                        "shop" => one.own(),
                        _ => one.signed(token),
                    };
                    let verdict = verdict(&sidecar.bearing(&text).get("/list"));
                    sent.fetch_add(1, Ordering::Relaxed);
                    if verdict != "200" {
                        rejected
                            .lock()
                            .unwrap()
                            .push(format!("{}: {verdict}", one.row.name));
                    }
                }
            });
            // The new key is published before its first token, as a rotation does.
            rotating.replies(json_answer("200 OK", &both.to_string()));
        }
        for _ in 0..3 {
            let fetches = rotating.server.requests().len();
            wait::until("another fetch", || {
                (rotating.server.requests().len() > fetches).then_some(())
            });
        }
        rotating.replies(json_answer("200 OK", &only(1)));
        let fetches = rotating.server.requests().len();
        wait::until("a fetch of the last key", || {
            (rotating.server.requests().len() > fetches + 1).then_some(())
        });
        ended.store(true, Ordering::Relaxed);
    });
    let rejected = rejected.into_inner().unwrap();
    assert_eq!(rejected, Vec::<String>::new());
    assert!(sent.into_inner() > 10);
}

#[test]
fn the_auth_server_is_one_issuer_among_others() {
    let issuers = Issuers::publish(&["shop"]);
    let shop = issuers.of("shop");
    let auth_server = AuthServerPlan::new().start();
    let config = format!(
        "[[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\n{}",
        issuers.tables()
    );
    fs::write(issuers.file(), config).unwrap();
    let file = issuers.file().display().to_string();
    let sidecar = SidecarPlan::new(&issuers.service, &auth_server.url())
        .flags(["--config", &file, "--ready", "all"])
        .flags(NEVER)
        .start()
        .ready();
    for token in [auth_server.login(), shop.own()] {
        let bearer = sidecar.bearing(&token);
        assert_eq!(verdict(&bearer.get("/list")), "200");
        assert_eq!(verdict(&bearer.get(USER_DETAILS)), "200");
    }
    let status = admin_get(sidecar.admin(), "/status.json").json();
    let names: Vec<_> = status["issuers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["members", "shop"]);
}

#[test]
fn metrics_status_and_explanations_name_the_issuer() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    issuers.of("cluster").replies(json_answer(AWAY, "{}"));
    let sidecar = issuers.plan().flags(NEVER).start().ready();
    wait::until("the first fetch of both", || {
        let metrics = admin_get(sidecar.admin(), "/metrics").text();
        let lines = [
            "postern_sidecar_keys_available{issuer=\"shop\"} 1",
            "postern_sidecar_keys_available{issuer=\"cluster\"} 0",
            "postern_sidecar_key_refreshes_total{outcome=\"failed\",result=\"failed\",issuer=\"shop\"} 0",
            "postern_sidecar_key_refreshes_total{outcome=\"replaced\",result=\"replaced\",issuer=\"shop\"} 1",
        ];
        let all = lines
            .iter()
            .all(|line| metrics.lines().any(|found| found == *line));
        all.then_some(())
    });
    let status = admin_get(sidecar.admin(), "/status.json").json();
    assert_eq!(status["issuers"][0]["name"], "shop");
    assert_eq!(status["issuers"][0]["keys"]["keys"][0]["id"], "key-1");
    assert_eq!(status["issuers"][1]["keys"], Value::Null);
    let page = admin_get(sidecar.admin(), "/").text();
    assert!(
        page.contains("Issuer shop") && page.contains("Issuer cluster"),
        "{page}"
    );

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
        let end = CommandLine::new(Program::Sidecar.path())
            .arguments([
                "explain",
                "/orders/list",
                "--json",
                "-H",
                "@-",
                "--expect",
                outcome,
            ])
            .arguments(["--admin-listen", &sidecar.admin().to_string()])
            .input(format!("Authorization: Bearer {}\n", shop.signed(shop.token(token))).as_bytes())
            .run();
        assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
        let explanation: Value = serde_json::from_str(&end.stdout).unwrap();
        assert_eq!(explanation["issuer"], issuer, "{token}");
        let keys = explanation["keys"]["keys"].as_array().map_or(0, Vec::len);
        assert_eq!(keys, usize::from(!issuer.is_null()), "{token}");
    }
}

/// Checks a file of settings.
pub(super) fn check(file: &Path, config: &str, more: &[&str]) -> Finished {
    fs::write(file, config).unwrap();
    CommandLine::new(Program::Sidecar.path())
        .arguments([
            "check",
            "--app-name",
            "orders",
            "--config",
            &file.display().to_string(),
        ])
        .arguments(more.iter().copied())
        .run()
}

#[test]
fn check_attacks_each_issuer_and_prints_a_file_with_the_same_meaning() {
    let issuers = Issuers::publish(&[]);
    let first = check(&issuers.file(), &issuers.tables(), &[]);
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    let rejected = |end: &Finished| {
        let line = end
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("# attacks: "));
        let count = line.and_then(|line| line.split(' ').next()?.parse::<usize>().ok());
        count.expect("a count of attacks")
    };
    let alone = check(&issuers.file(), &issuers.of("shop").table(), &[]);
    assert_eq!(rejected(&first), issuers.published.len() * rejected(&alone));
    let again = check(&issuers.file(), &first.stdout, &[]);
    assert_eq!(
        (again.code, &again.stdout),
        (Some(0), &first.stdout),
        "{}",
        again.stderr
    );

    let own = "auth-server = 'http://127.0.0.1:1/auth'\napp-id = 'a'\n[[issuer]]\nname = 'members'\nissuer = 'auth'\naudience = ['orders']\nauth-server = true\n";
    let own = format!("{own}{}", issuers.of("cluster").table());
    let secret = ["--app-secret", "s"];
    let first = check(&issuers.file(), &own, &secret);
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    let again = check(&issuers.file(), &first.stdout, &secret);
    assert_eq!(
        (again.code, again.stdout),
        (Some(0), first.stdout),
        "{}",
        again.stderr
    );
}

#[test]
fn check_online_fetches_the_keys_of_each_issuer() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let service = ["--online", "--upstream", &issuers.service.url()];
    let end = check(&issuers.file(), &issuers.tables(), &service);
    assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
    assert_eq!(
        end.stdout.matches("# online: keys from ").count(),
        2,
        "{}",
        end.stdout
    );
    issuers.of("cluster").replies(json_answer(AWAY, "{}"));
    let end = check(&issuers.file(), &issuers.tables(), &service);
    assert_eq!(end.code, Some(69), "{}{}", end.stdout, end.stderr);
    let file =
        "\n[[issuer]]\nname = 'gone'\nissuer = 'i'\naudience = ['a']\njwks-file = '/nowhere'";
    let with_file = issuers.of("shop").table() + file;
    let end = check(&issuers.file(), &with_file, &["--strict"]);
    assert_eq!(end.code, Some(78), "{}{}", end.stdout, end.stderr);
    assert!(
        end.stderr.contains("gone") && end.stderr.contains("/nowhere"),
        "{}",
        end.stderr
    );
}

#[test]
fn an_unusable_table_stops_the_start_by_its_name() {
    const TABLE: &str = "[[issuer]]\nname = 'idp'\nissuer = 'https://idp/'\n";
    const GOOD: &str = "audience = ['a']\njwks-url = 'https://idp/keys'\n";
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("sidecar.toml");
    let table = |members: &str| format!("{TABLE}{members}");
    let tenants = |pattern: &str, tenants: &str| {
        let pattern = format!("issuer-pattern = '{pattern}'\ntenants = {tenants}\n");
        table(GOOD).replace("issuer = 'https://idp/'\n", &pattern)
    };
    let many: String = (0..17)
        .map(|n| format!("[[issuer]]\nname = 'i{n}'\nissuer = 'i{n}'\n{GOOD}"))
        .collect();
    let mut verdicts = Verdicts::default();
    for (config, mentions) in [
        (table(""), "idp"),
        (table("jwks-url = 'https://idp/keys'"), "audience"),
        (table("audience = ['']\njwks-url = 'https://idp/keys'"), "audience"),
        (table("audience = ['a']"), "source of keys"),
        (table(&format!("{GOOD}jwks-file = '/f'")), "source of keys"),
        (table(&format!("{GOOD}discovery = true")), "source of keys"),
        (table(&format!("{GOOD}algorithms = ['HS256']")), "RS256"),
        (table(&format!("{GOOD}algorithms = ['none']")), "RS256"),
        (table(&format!("{GOOD}claim = {{ nick = 'name' }}")), "nick=name"),
        (table(&format!("{GOOD}audiences = ['a']")), "audiences"),
        (table(&format!("{GOOD}ca = '/ca'").replace("https://idp/keys", "http://idp/keys")), "ca"),
        (table(&format!("{GOOD}keys-proxy = 'https://p:1'")), "keys-proxy"),
        (table(&format!("{GOOD}keys-proxy = 'http://u:hush@p:1'")), "keys-proxy"),
        (table(&format!("{GOOD}jwks-hosts = ['a']")), "jwks-hosts"),
        (table(&format!("{GOOD}token-file = '/t'")), "token-file"),
        (table(&format!("{GOOD}token-header = ''")), "idp: token-header ''"),
        (table(&format!("{GOOD}token-header = 'X_Jwt'")), "idp: token-header"),
        (table(&format!("{GOOD}token-header = 'authorization'")), "idp: token-header"),
        (table(&format!("{GOOD}token-header = 'Cookie'")), "idp: token-header"),
        (table(&format!("{GOOD}token-header = 'Host'")), "idp: token-header"),
        (table(&format!("{GOOD}token-header = 'Connection'")), "idp: token-header"),
        (table(&format!("{GOOD}token-header = 'Proxy-Authorization'")), "idp: token-header"),
        (table(&format!("{GOOD}token-header = 'X-Forwarded-For'")), "idp: token-header"),
        (table(&format!("{GOOD}token-header = 'x-current-user'")), "to the service"),
        (
            format!("user-header = 'X-User'\n{}token-header = 'X-User'\n", table(GOOD)),
            "to the service",
        ),
        (
            format!("claim-header = ['X-Sub=sub']\n{}token-header = 'x-sub'\n", table(GOOD)),
            "to the service",
        ),
        (table(&format!("{GOOD}token-header = 'Postern-Would-Refuse'")), "to the service"),
        (format!("cookie-origin = ['https://a.b']\n{}", table(GOOD)), "--cookie-origin"),
        (table("audience = ['a']\njwks-url = 'ftp://idp/keys'"), "jwks-url"),
        (table("audience = ['a']\njwks-url = 'https://u:hush@idp/keys'"), "jwks-url"),
        (table(GOOD).replace("'idp'", "'Id P'"), "Id P"),
        (table(GOOD).replace("'idp'", "''"), "name"),
        (
            table(GOOD).replace("'idp'", "'revocations'"),
            "revocations: the name",
        ),
        (table(GOOD).replace("issuer = 'https://idp/'", "issuer = ''"), "issuer"),
        (table(GOOD).replace("issuer = 'https://idp/'\n", ""), "issuer"),
        (format!("{}{}", table(GOOD), table(GOOD)), "name"),
        (format!("{}{}", table(GOOD), table(GOOD).replace("'idp'", "'b'")), "same `issuer`"),
        (table(&format!("{GOOD}auth-server = true")), "auth-server"),
        (table("discovery = true\naudience = ['a']").replace("https", "http"), "https"),
        (table("discovery = true\naudience = ['a']").replace("https://idp/", "auth"), "issuer 'auth'"),
        (format!("jwks-url = 'https://a/b'\n{}", table(GOOD)), "--jwks-url"),
        (format!("claim = ['id=sub']\n{}", table(GOOD)), "--claim"),
        (format!("audience = ['a']\n{}", table(GOOD)), "--audience"),
        (
            format!("auth-server = 'http://127.0.0.1:1/a'\napp-id = 'a'\n{}", table(GOOD)),
            "the iss of the auth server",
        ),
        (many, "16"),
        (table(&format!("{GOOD}tenants = ['a']")), "tenants"),
        (table(&format!("{GOOD}issuer-pattern = 'https://idp/{{t}}'")), "issuer-pattern"),
        (tenants("https://idp/", "['a']"), "issuer-pattern"),
        (tenants("https://idp/{a}/{b}", "['a']"), "issuer-pattern"),
        (tenants("https://idp/{t}", "[]"), "tenants"),
        (tenants("https://idp/{t}", "['']"), "tenants"),
        (tenants("https://idp/{t}", "['*']"), "tenant '*'"),
        (tenants("https://idp/{t}", "['a', 'x/../y']"), "tenant 'x/../y'"),
        (tenants("https://idp/{t}", "['a b']"), "tenant 'a b'"),
        (table(GOOD).replace("'idp'", "'new'"), "new: the name"),
        (format!("auth-ca = '/ca'\n{}", table(GOOD)), "--auth-ca: has an effect only with --auth-server; a table has `ca`"),
        (
            table("audience = ['a']").replace("https://idp/", "kubernetes://"),
            "kubernetes:///",
        ),
        (tenants("https://idp/{t}", "['a', 'b', 'a']"), "same `issuer`"),
        (tenants("https://idp/{t}", "['a']").replace("jwks-url = 'https://idp/keys'", "discovery = true"), "discovery"),
        (
            "[[issuer]]\nname = 'k8s'\nissuer = 'kubernetes:///'\naudience = ['a']\ntoken-file = '/nowhere'".to_owned(),
            "/nowhere",
        ),
    ] {
        let end = CommandLine::new(Program::Sidecar.path())
            .arguments(["check", "--config", &file.display().to_string()])
            .environment("POSTERN_APP_SECRET", "s");
        fs::write(&file, &config).unwrap();
        let end = end.run();
        let good = end.code == Some(78)
            && end.stderr.lines().count() == 1
            && end.stderr.contains(mentions)
            && !end.stderr.contains("hush");
        let difference = format!("exit {:?}, {}", end.code, end.stderr);
        verdicts.row(&config, (!good).then_some(difference));
    }
    verdicts.conclude();
}

#[test]
fn audiences_and_claims_change_at_a_reload_and_sources_wait() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let sidecar = issuers.start();
    let cluster = issuers.of("cluster");
    let bearer = sidecar.bearing(&cluster.own());
    assert_eq!(verdict(&bearer.get("/list")), "200");
    let reload = |config: &str, said: &str| {
        let before = sidecar.process().stderr().matches(said).count();
        fs::write(issuers.file(), config).unwrap();
        sidecar.process().signal("HUP");
        wait::until("the reload", || {
            (sidecar.process().stderr().matches(said).count() > before).then_some(())
        });
    };
    let other = issuers
        .tables()
        .replace("audience = [\"orders\"]", "audience = [\"stock\"]");
    reload(&other, "configuration reloaded");
    assert_eq!(verdict(&bearer.get("/list")), "401 token_audience");
    let elsewhere = issuers
        .tables()
        .replace(&cluster.url(), "http://127.0.0.1:1/keys");
    reload(&elsewhere, "these settings take effect at the next start");
    // Audiences belong to the tables: all of them stay as they are meanwhile.
    assert_eq!(verdict(&bearer.get("/list")), "401 token_audience");
    reload(&issuers.tables(), "configuration reloaded");
    assert_eq!(verdict(&bearer.get("/list")), "200");
}

#[test]
fn what_a_reload_closed_stays_closed_while_another_waits() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let (shop, cluster) = (issuers.of("shop"), issuers.of("cluster"));
    let sidecar = issuers
        .plan_with(&shop.table())
        .flags(NEVER)
        .start()
        .ready();
    let bearer = sidecar.bearing(&shop.own());
    let verdicts = || ["/admin/x", "/open/x"].map(|path| verdict(&bearer.get(path)));
    let without = || verdict(&sidecar.anonymous().get("/open/x"));
    assert_eq!(verdicts(), ["200", "200"]);
    let reload = |config: &str, restart_needed: &str| {
        let reloads = |metrics: &str| {
            let name = "postern_sidecar_config_reloads_total{outcome=\"applied\"";
            let line = metrics.lines().find(|line| line.starts_with(name));
            line.unwrap().rsplit(' ').next().unwrap().to_owned()
        };
        let metrics = || admin_get(sidecar.admin(), "/metrics").text();
        let before = reloads(&metrics());
        fs::write(issuers.file(), config).unwrap();
        sidecar.process().signal("HUP");
        wait::until("the reload", || {
            (reloads(&metrics()) != before).then_some(())
        });
        let line = format!("postern_sidecar_config_restart_needed {restart_needed}");
        let metrics = metrics();
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
    };
    let rule = "[[rule]]\npaths = ['/admin/**', '/open/**']\nscope = ['admin']\n";
    reload(&format!("{rule}{}", shop.table()), "0");
    let closed = ["403 insufficient_scope", "403 insufficient_scope"];
    assert_eq!(verdicts(), closed);
    let both = shop.table() + &cluster.table();
    reload(&format!("{rule}{both}"), "1");
    assert_eq!(verdicts(), closed);
    // A pass list for which no rule of the file is, but the one that stays meanwhile.
    reload(&format!("pass = ['/open/**']\n{both}"), "1");
    assert_eq!(
        (verdicts(), without().as_str()),
        (closed.map(str::to_owned), "401 token_missing")
    );
    reload(&format!("pass = ['/open/**']\n{}", shop.table()), "0");
    assert_eq!(
        (verdicts(), without().as_str()),
        (["200", "200"].map(str::to_owned), "200")
    );
}

#[test]
fn each_issuer_has_a_key_cache_of_its_own() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let cache = issuers.home.path().join("keys.json");
    let flags = ["--key-cache", cache.to_str().unwrap(), "--ready", "all"];
    let plan = || issuers.plan().flags(NEVER).flags(flags);
    let sidecar = plan().start().ready();
    for name in ["shop", "cluster"] {
        let file = format!("{}.{name}", cache.display());
        wait::until("the cache", || Path::new(&file).exists().then_some(()));
        issuers.of(name).replies(json_answer(AWAY, "{}"));
    }
    drop(sidecar);
    let sidecar = plan().start().ready();
    for name in ["shop", "cluster"] {
        let answer = sidecar.bearing(&issuers.of(name).own()).get("/list");
        assert_eq!(verdict(&answer), "200", "{name}");
    }
    // The keys of one issuer are never another's, even from a file that was moved.
    let (shop, cluster) = (
        format!("{}.shop", cache.display()),
        format!("{}.cluster", cache.display()),
    );
    fs::rename(shop, cluster).unwrap();
    let sidecar = plan().start();
    let answer = sidecar.bearing(&issuers.of("cluster").own()).get("/list");
    assert_eq!(verdict(&answer), "503 auth_keys_unavailable");
}

#[test]
fn listed_tenants_of_one_key_set_are_accepted() {
    let issuers = Issuers::publish(&["entra-v2"]);
    let entra = issuers.of("entra-v2");
    let tenants = entra.table().replace(
        "issuer = \"https://login.microsoftonline.com/8a2f/v2.0\"",
        "issuer-pattern = \"https://login.microsoftonline.com/{tid}/v2.0\"\ntenants = [\"8a2f\", \"ffff\"]",
    );
    let sidecar = issuers.plan_with(&tenants).flags(NEVER).start().ready();
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
            assert_eq!(verdict(&bearer.get("/list")), expected, "{tenant}");
        }
    }
    assert_eq!(entra.server.requests().len(), 1, "one key set");
    let status = admin_get(sidecar.admin(), "/status.json").json();
    let accepts = status["issuers"][0]["accepts"].as_array().map(Vec::len);
    assert_eq!(
        (accepts, status["issuers"].as_array().map(Vec::len)),
        (Some(2), Some(1))
    );
}

/// An issuer with a discovery document at its own address.
struct Discoverable {
    one: Published,
    documents: SocketServer,
    document: Arc<Mutex<Value>>,
}

impl Discoverable {
    fn new() -> Self {
        let table: IssuerTable = load("several_issuers.toml");
        let row = table.issuer.into_iter().find(|row| row.name == "cluster");
        let one = Published::new(row.unwrap());
        let document = Arc::new(Mutex::new(Value::Null));
        let current = Arc::clone(&document);
        let documents = SocketServer::start(move |request| match request.target().as_slice() {
            b"/realm/.well-known/openid-configuration" => {
                json_answer("200 OK", &current.lock().unwrap().to_string())
            }
            _ => json_answer("404 Not Found", "{}"),
        });
        let this = Self {
            one,
            documents,
            document,
        };
        this.names(json!({"issuer": this.issuer(), "jwks_uri": this.one.url()}));
        this
    }

    fn names(&self, document: Value) {
        *self.document.lock().unwrap() = document;
    }

    fn issuer(&self) -> String {
        format!("http://{}/realm", self.documents.address())
    }

    fn table(&self) -> String {
        let issuer = self.issuer();
        format!(
            "[[issuer]]\nname = 'realm'\nissuer = '{issuer}'\ndiscovery = true\naudience = ['orders']\n"
        )
    }

    /// Returns a token in the name of this issuer.
    fn token(&self) -> String {
        let token = self.one.token("a projected token of a ServiceAccount");
        let renamed = IssuerToken::with_payload(token, |payload| {
            payload.replace(
                "https://kubernetes.default.svc.cluster.local",
                &self.issuer(),
            )
        });
        self.one.signed(&renamed)
    }
}

#[test]
fn discovery_finds_the_key_set_by_the_issuer_alone() {
    let realm = Discoverable::new();
    let issuers = Issuers::publish(&["shop"]);
    let by_table = issuers.plan_with(&(realm.table() + &issuers.tables()));
    let issuer = realm.issuer();
    let flags = ["--issuer-url", &issuer, "--audience", "orders"];
    let by_flags = SidecarPlan::of_issuer(&issuers.service, flags);
    for plan in [by_table, by_flags] {
        let sidecar = plan.flags(EVERY_SECOND).start().ready();
        let of_realm = wait::until("the keys of the realm", || {
            let answer = sidecar.bearing(&realm.token()).get("/list");
            (answer.status() == 200).then_some(answer)
        });
        assert_eq!(of_realm.status(), 200);
        let read = realm.documents.requests().len();
        let fetched = realm.one.server.requests().len();
        wait::until("two more fetches", || {
            (realm.one.server.requests().len() > fetched + 1).then_some(())
        });
        assert_eq!(
            realm.documents.requests().len(),
            read,
            "the document is read hourly"
        );
        let token = realm.one.own();
        let other = verdict(&sidecar.bearing(&token).get("/list"));
        assert_eq!(other, "401 token_issuer");
    }
}

#[test]
fn a_document_of_another_issuer_or_host_is_not_followed() {
    let realm = Discoverable::new();
    let service = EchoService::start();
    let (issuer, keys) = (realm.issuer(), realm.one.url());
    let elsewhere = keys.replace("127.0.0.1", "localhost");
    for (document, said) in [
        (
            json!({"issuer": format!("{issuer}/"), "jwks_uri": keys}),
            "another issuer's",
        ),
        (
            json!({"issuer": issuer, "jwks_uri": elsewhere}),
            "leads to localhost",
        ),
        (
            json!({"issuer": issuer, "jwks_uri": "http://127.0.0.1.nip.io/keys"}),
            "leads to",
        ),
        (json!({"issuer": issuer}), "not a discovery document"),
        (json!("<html>"), "not a discovery document"),
    ] {
        realm.names(document.clone());
        let flags = ["--issuer-url", &issuer, "--audience", "orders"];
        let sidecar = SidecarPlan::of_issuer(&service, flags).flags(NEVER).start();
        wait::until("the failure in the log", || {
            sidecar.process().stderr().contains(said).then_some(())
        });
        let answer = sidecar.bearing(&realm.token()).get("/list");
        assert_eq!(verdict(&answer), "503 auth_keys_unavailable", "{document}");
    }
    assert_eq!(realm.one.server.requests().len(), 0);
    // Another host only where the table names it.
    realm.names(json!({"issuer": issuer, "jwks_uri": elsewhere}));
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("sidecar.toml");
    fs::write(&file, realm.table() + "jwks-hosts = ['localhost']\n").unwrap();
    let flags = ["--config", file.to_str().unwrap()];
    let sidecar = SidecarPlan::of_issuer(&service, flags)
        .flags(NEVER)
        .start()
        .ready();
    assert_eq!(
        verdict(&sidecar.bearing(&realm.token()).get("/list")),
        "200"
    );
}

#[test]
fn a_key_set_that_moves_is_found_again() {
    let realm = Discoverable::new();
    let service = EchoService::start();
    let issuer = realm.issuer();
    let flags = ["--issuer-url", &issuer, "--audience", "orders"];
    let plan = SidecarPlan::of_issuer(&service, flags).flags(EVERY_SECOND);
    let sidecar = plan.start().ready();
    let moved = serving(json_answer(
        "200 OK",
        &realm.one.issuer.jwks(&realm.one.row),
    ));
    let uri = format!("http://{}/moved", moved.address());
    realm.names(json!({"issuer": issuer, "jwks_uri": uri}));
    realm
        .one
        .replies(Reply::Bytes(response("404 Not Found", &[], b"")));
    wait::until("a fetch at the new address", || {
        (!moved.requests().is_empty()).then_some(())
    });
    assert_eq!(
        verdict(&sidecar.bearing(&realm.token()).get("/list")),
        "200"
    );
}

/// A stand-in for the API server: it wants TLS, and the token of the moment.
fn api_server(authority: &Authority, jwks: String, wanted: &Arc<Mutex<String>>) -> SocketServer {
    let tls = authority.issue("api").serving(None);
    let wanted = Arc::clone(wanted);
    SocketServer::start_tls(tls, move |request| {
        let bearer = format!("Bearer {}", wanted.lock().unwrap());
        if request.header("authorization") == [bearer.as_str()] {
            json_answer("200 OK", &jwks)
        } else {
            json_answer("401 Unauthorized", "{}")
        }
    })
}

#[test]
fn the_cluster_s_keys_are_fetched_with_the_pod_s_own_token() {
    let issuers = Issuers::publish(&["cluster", "shop"]);
    let (cluster, shop) = (issuers.of("cluster"), issuers.of("shop"));
    let authority = Authority::new();
    let pod = cluster.own();
    let wanted = Arc::new(Mutex::new(pod.clone()));
    let server = api_server(&authority, cluster.issuer.jwks(&cluster.row), &wanted);
    let token_file = issuers.home.path().join("token");
    fs::write(&token_file, &pod).unwrap();
    let config = format!(
        "{}[[issuer]]\nname = 'pods'\nissuer = 'kubernetes:///'\naudience = ['orders']\n\
         jwks-url = 'https://{}/openid/v1/jwks'\ntoken-file = '{}'\nca = '{}'\n",
        shop.table(),
        server.address(),
        token_file.display(),
        authority.file().display()
    );
    let plan = issuers.plan_with(&config).flags(EVERY_SECOND);
    let sidecar = plan.flags(["--ready", "all"]).start().ready();
    for token in [&pod, &shop.own()] {
        assert_eq!(verdict(&sidecar.bearing(token).get("/list")), "200");
    }
    assert_eq!(server.requests()[0].target(), b"/openid/v1/jwks");
    // The kubelet replaces the token, and the former one ends.
    let before = server.requests().len();
    "another".clone_into(&mut wanted.lock().unwrap());
    fs::write(&token_file, "another\n").unwrap();
    wait::until("a fetch with the new token", || {
        let requests = server.requests();
        let mut later = requests.iter().skip(before);
        later
            .any(|request| request.header("authorization") == ["Bearer another"])
            .then_some(())
    });
    assert!(!sidecar.process().output().contains(&pod));
}

#[test]
fn keys_come_through_the_named_proxy_and_no_other() {
    let issuers = Issuers::publish(&["cluster"]);
    let cluster = issuers.of("cluster");
    let authority = Authority::new();
    let tls = authority.issue("idp").serving(None);
    let (jwks, ca) = (cluster.issuer.jwks(&cluster.row), authority.file());
    let server = SocketServer::start_tls(tls, move |_| json_answer("200 OK", &jwks));
    let url = format!("https://{}/keys", server.address());
    let (named, of_environment) = (ConnectProxy::start(), ConnectProxy::start());
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let table = format!(
        "[[issuer]]\nname = 'idp'\nissuer = '{issuer}'\naudience = ['orders']\njwks-url = '{url}'\nca = '{}'\nkeys-proxy = '{}'\n",
        ca.display(),
        named.url()
    );
    let flags = [
        "--jwks-url",
        &url,
        "--auth-ca",
        &ca.display().to_string(),
        "--keys-proxy",
        &named.url(),
        "--issuer",
        issuer,
        "--audience",
        "orders",
    ];
    let by_flags = SidecarPlan::of_issuer(&issuers.service, flags);
    for (number, plan) in [by_flags, issuers.plan_with(&table)]
        .into_iter()
        .enumerate()
    {
        let plan = plan
            .flags(NEVER)
            .environment("HTTPS_PROXY", &of_environment.url());
        let sidecar = plan.start().ready();
        assert_eq!(
            verdict(&sidecar.bearing(&cluster.own()).get("/list")),
            "200"
        );
        assert_eq!(
            named.tunnels(),
            vec![server.address().to_string(); number + 1]
        );
    }
    assert_eq!(of_environment.tunnels(), Vec::<String>::new());
}

/// Returns the TOML blocks below a heading of the document.
fn documented_tables(heading: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join("docs/issuers.md")).unwrap();
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```toml\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_documented_tables_are_valid() {
    let issuers = Issuers::publish(&["cluster"]);
    let token_file = issuers.home.path().join("token");
    fs::write(&token_file, issuers.of("cluster").own()).unwrap();
    let secret_file = issuers.home.path().join("app-secret");
    tests::certificates::write_private(&secret_file, "secret");
    let blocks = documented_tables("Several issuers");
    assert_eq!(blocks.len(), 2);
    let kubernetes = "issuer = \"kubernetes:///\"\n";
    for block in blocks {
        let here = format!("{kubernetes}token-file = '{}'\n", token_file.display());
        let config = block.replace(kubernetes, &here);
        let config = config.replace("/etc/postern/app-secret", secret_file.to_str().unwrap());
        fs::write(issuers.file(), &config).unwrap();
        let end = CommandLine::new(Program::Sidecar.path())
            .arguments(["check", "--config", issuers.file().to_str().unwrap()])
            .run();
        assert_eq!(end.code, Some(0), "{config}\n{}", end.stderr);
    }
}
