//! The way to the keys of each issuer: key cache, token file, proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tests::actors::sidecar::{EVERY_SECOND, NEVER};
use tests::services::connect_proxy::ConnectProxy;
use tests::services::fake_auth_server::json_response;
use tests::services::socket_server::SocketServer;
use tests::wait;
use tests::wire::certificates::Authority;

use super::published::{AWAY, Issuers};

#[test]
fn each_issuer_has_a_key_cache_of_its_own() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let cache = issuers.home.path().join("keys.json");
    let flags = ["--key-cache", cache.to_str().unwrap()];
    let plan = || issuers.plan().flags(NEVER).flags(flags);
    let sidecar = plan().with_all_keys();
    for name in ["shop", "cluster"] {
        let file = format!("{}.{name}", cache.display());
        wait::until("the cache", || Path::new(&file).exists());
        issuers.of(name).replies(json_response(AWAY, "{}"));
    }
    drop(sidecar);
    let sidecar = plan().ready();
    for name in ["shop", "cluster"] {
        let response = sidecar.bearing(&issuers.of(name).own()).get("/list");
        assert_eq!(response.verdict(), "200", "{name}");
    }
    // The keys of one issuer are never another's, even from a file that was moved.
    let (shop, cluster) = (
        format!("{}.shop", cache.display()),
        format!("{}.cluster", cache.display()),
    );
    drop(sidecar);
    fs::rename(shop, cluster).unwrap();
    let sidecar = plan().start();
    let response = sidecar.bearing(&issuers.of("cluster").own()).get("/list");
    assert_eq!(response.verdict(), "503 auth_keys_unavailable");
}

/// A stand-in for the API server: it wants TLS, and the token of the moment.
fn api_server(authority: &Authority, jwks: String, wanted: &Arc<Mutex<String>>) -> SocketServer {
    let tls = authority.issue("api").serving(None);
    let wanted = Arc::clone(wanted);
    SocketServer::start_tls(tls, move |request| {
        let bearer = format!("Bearer {}", wanted.lock().unwrap());
        if request.header("authorization") == [bearer.as_str()] {
            json_response("200 OK", &jwks)
        } else {
            json_response("401 Unauthorized", "{}")
        }
    })
}

/// The row `cluster` as a Kubernetes cluster, with the token of a pod.
pub(crate) struct Pods {
    server: SocketServer,
    pub(crate) token: String,
    token_file: PathBuf,
    /// The token that the API server wants.
    wanted: Arc<Mutex<String>>,
    /// Its `[[issuer]]`.
    pub(crate) table: String,
    _authority: Authority,
}

impl Pods {
    pub(crate) fn of(issuers: &Issuers) -> Self {
        let (cluster, authority) = (issuers.of("cluster"), Authority::new());
        let token = cluster.own();
        let wanted = Arc::new(Mutex::new(token.clone()));
        let server = api_server(&authority, cluster.jwks(), &wanted);
        let token_file = issuers.home.path().join("token");
        fs::write(&token_file, &token).unwrap();
        let table = format!(
            "[[issuer]]\nname = 'pods'\nissuer = 'kubernetes:///'\naudience = ['orders']\n\
             jwks = 'https://{}/openid/v1/jwks'\ntoken-file = '{}'\nca = '{}'\n",
            server.address(),
            token_file.display(),
            authority.file().display()
        );
        Self {
            server,
            token,
            token_file,
            wanted,
            table,
            _authority: authority,
        }
    }
}

#[test]
fn the_cluster_s_keys_are_fetched_with_the_pod_s_own_token() {
    let issuers = Issuers::publish(&["cluster", "shop"]);
    let pods = Pods::of(&issuers);
    let config = issuers.of("shop").table() + &pods.table;
    let plan = issuers.plan_with(&config).flags(EVERY_SECOND);
    let sidecar = plan.with_all_keys();
    for token in [&pods.token, &issuers.of("shop").own()] {
        assert_eq!(sidecar.verdict_of(token), "200");
    }
    assert_eq!(pods.server.requests()[0].target(), b"/openid/v1/jwks");
    // The kubelet replaces the token, and the former one ends.
    let before = pods.server.requests().len();
    "another".clone_into(&mut pods.wanted.lock().unwrap());
    fs::write(&pods.token_file, "another\n").unwrap();
    wait::until("a fetch with the new token", || {
        let requests = pods.server.requests();
        let mut later = requests.iter().skip(before);
        later.any(|request| request.header("authorization") == ["Bearer another"])
    });
    assert!(!sidecar.process().output().contains(&pods.token));
}

#[test]
fn a_cluster_that_keeps_its_keys_from_pods_names_the_role() {
    let issuers = Issuers::publish(&["cluster"]);
    let authority = Authority::new();
    let tls = authority.issue("api").serving(None);
    let server = SocketServer::start_tls(tls, |_| json_response("403 Forbidden", "{}"));
    let token_file = issuers.home.path().join("token");
    fs::write(&token_file, issuers.of("cluster").own()).unwrap();
    let table = format!(
        "[[issuer]]\nname = 'pods'\nissuer = 'kubernetes:///'\naudience = ['orders']\n\
         jwks = 'https://{}/keys'\ntoken-file = '{}'\nca = '{}'\n",
        server.address(),
        token_file.display(),
        authority.file().display()
    );
    let sidecar = issuers.plan_with(&table).flags(NEVER).start();
    sidecar.until_logged("ClusterRole system:service-account-issuer-discovery");
}

#[test]
fn keys_come_through_the_named_proxy_and_no_other() {
    let issuers = Issuers::publish(&["cluster"]);
    let cluster = issuers.of("cluster");
    let authority = Authority::new();
    let tls = authority.issue("idp").serving(None);
    let (jwks, ca) = (cluster.jwks(), authority.file());
    let server = SocketServer::start_tls(tls, move |_| json_response("200 OK", &jwks));
    let url = format!("https://{}/keys", server.address());
    let (named, of_environment) = (ConnectProxy::start(), ConnectProxy::start());
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let table = format!(
        "[[issuer]]\nname = 'idp'\nissuer = '{issuer}'\naudience = ['orders']\njwks = '{url}'\nca = '{}'\nkeys-proxy = ' {} '\n",
        ca.display(),
        named.url()
    );
    let plan = issuers.plan_with(&table).flags(NEVER);
    let sidecar = plan
        .environment("HTTPS_PROXY", &of_environment.url())
        .ready();
    let response = sidecar.bearing(&cluster.own()).get("/list");
    assert_eq!(response.verdict(), "200");
    assert_eq!(named.tunnels(), [server.address().to_string()]);
    assert_eq!(of_environment.tunnels(), Vec::<String>::new());
}

/// As curl reads them: `https_proxy` before `HTTPS_PROXY`, and hosts of `NO_PROXY` directly.
#[test]
fn keys_come_through_the_proxy_of_the_environment() {
    let issuers = Issuers::publish(&["cluster"]);
    let cluster = issuers.of("cluster");
    let authority = Authority::new();
    let tls = authority.issue_server(&["idp.invalid"]).serving(None);
    let jwks = cluster.jwks();
    let server = SocketServer::start_tls(tls, move |_| json_response("200 OK", &jwks));
    let table = |more: &str| {
        format!(
            "[[issuer]]\nname = 'idp'\nissuer = 'https://kubernetes.default.svc.cluster.local'\n\
             audience = ['orders']\njwks = 'https://idp.invalid/keys'\nca = '{}'\n{more}\n",
            authority.file().display()
        )
    };
    for (no_proxy, more, is_proxied) in [
        ("", "", true),
        ("p.invalid, valid", "", true),
        ("10.0.0.0/8 other", "", true),
        ("idp.invalid", "", false),
        ("a, .Invalid.", "", false),
        ("a invalid", "", false),
        ("a\n invalid\n", "", false),
        ("*", "", false),
        ("", "keys-proxy = 'none'", false),
    ] {
        let proxy = ConnectProxy::to(server.address());
        let plan = issuers.plan_with(&table(more)).flags(NEVER);
        let url = format!(" http://me%40shop:hu%3Ash@127.0.0.1:{}\n", proxy.port());
        let plan = plan.environment("HTTPS_PROXY", &url);
        let sidecar = plan.environment("NO_PROXY", no_proxy).start();
        let fetched = match is_proxied {
            true => "verification key fetched",
            false => "verification key not fetched",
        };
        sidecar.until_logged(fetched);
        let expected: &[&str] = match is_proxied {
            true => &["idp.invalid:443"],
            false => &[],
        };
        assert_eq!(proxy.tunnels(), expected, "{no_proxy} {more}");
        for request in proxy.requests() {
            let sent = request.header("proxy-authorization");
            // me@shop:hu:sh
            assert_eq!(sent, ["Basic bWVAc2hvcDpodTpzaA=="]);
        }
        let log = sidecar.process().output();
        let is_named = log.contains("HTTPS_PROXY: the keys of issuers are fetched through");
        assert_eq!(is_named, no_proxy != "*" && more.is_empty(), "{log}");
        assert!(!log.contains("hu%3Ash") && !log.contains("hu:sh"), "{log}");
    }
}

#[test]
fn a_proxy_that_cannot_be_used_is_named_once_at_the_start() {
    let issuers = Issuers::publish(&["cluster"]);
    let table = |name: &str| {
        format!(
            "[[issuer]]\nname = '{name}'\nissuer = 'https://{name}.example'\naudience = ['orders']\n\
             jwks = 'https://127.0.0.1:1/{name}'\nuser-prefix = '{name}:'\n"
        )
    };
    for value in [
        "socks5://me:hush@proxy:1080",
        "'http://me:hush@proxy:1'",
        "http://",
    ] {
        let plan = issuers.plan_with(&(table("a") + &table("b"))).flags(NEVER);
        let sidecar = plan.environment("HTTPS_PROXY", value).start();
        sidecar.until_logged("verification key not fetched");
        let log = sidecar.process().output();
        let line = "keys are fetched without a proxy: HTTPS_PROXY: expected http://";
        assert_eq!(log.matches(line).count(), 1, "{log}");
        assert!(!log.contains("hush"), "{log}");
    }
}
