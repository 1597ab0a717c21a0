//! No secret is in any output (lesson D28): the test searches all output of both programs, at the
//! most verbose log level, for every secret of a whole run.

use serde_json::json;
use tests::actors::applications::register_in;
use tests::actors::auth_server::{AuthServerPlan, LOGIN, USER_DETAILS, admin_get, file_store};
use tests::actors::expect::has;
use tests::actors::file_store;
use tests::actors::programs::Program;
use tests::actors::sidecar::{EVERY_SECOND, SidecarPlan};
use tests::actors::stack::signing_flags;
use tests::actors::token_forge::Forge;
use tests::keys::SigningType;
use tests::services::echo_service::EchoService;
use tests::wire::clock;

/// Both settings of the log level.
const TALKATIVE: [(&str, &str); 2] = [("RUST_LOG", "trace"), ("POSTERN_LOG_LEVEL", "trace")];

const PASSWORD: &str = "hush-password-1f9c";
const CODE: &str = "hush-code-77";
const TICKET: &str = "hush-ticket-83a0";
const WRONG_SECRET: &str = "hush-wrong-secret-4d";

#[test]
fn contract_4_3_rule_3_no_secret_of_a_run_is_in_any_output() {
    for signing_type in SigningType::ALL {
        let secrets_found = whole_run(signing_type);
        let expected = Vec::<String>::new();
        assert_eq!(secrets_found, expected, "{}", signing_type.name());
    }
}

/// Runs every feature that uses a secret; returns the secrets that appear in any output.
fn whole_run(signing_type: SigningType) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let app_secret = register_in(&file_store(directory.path()), "orders");
    let plan = AuthServerPlan::new()
        .directory(directory.path())
        .flags(["--signing-type", signing_type.name()])
        .flags(["--access-log", "all"]);
    let auth_server = plan.environments(&TALKATIVE).ready();

    let service = EchoService::start();
    let plan = SidecarPlan::new(&service, &auth_server.url()).application("orders", &app_secret);
    let plan = plan
        .flags(signing_flags(signing_type))
        .flags(EVERY_SECOND)
        .flags(["--access-log", "all", "--request-id"]);
    let sidecar = plan.environments(&TALKATIVE).ready();

    let login = json!({"username": "alice", "password": PASSWORD, "code": CODE});
    let anonymous = auth_server.anonymous();
    let token = anonymous.post(LOGIN, &login).access_token();
    let unusable = json!({"username": "alice", "password": {"x": PASSWORD}});
    anonymous.post(LOGIN, &unusable);
    for secret in [app_secret.as_str(), WRONG_SECRET] {
        for target in [
            format!("/client/user/secret/key?appId=orders&appSecret={secret}"),
            format!("/client/user/secret/key?appSecret={secret}"),
            // Two swapped settings.
            format!("/client/user/secret/key?appId={secret}&appSecret=orders"),
            format!("/nowhere?appSecret={secret}"),
        ] {
            anonymous.get(&target);
        }
        let target = format!("/list?appSecret={secret}");
        sidecar.anonymous().get(&target);
    }
    let forged = Forge::new(signing_type).token(clock::now(), &json!({"username": "mallory"}));
    for token in [&token, &forged] {
        for client in [
            auth_server.anonymous().bearing(token),
            sidecar.bearing(token),
        ] {
            client.get(USER_DETAILS);
            let request = client.request("GET", "/list");
            client.send(&request.line(format!("Verified-Ticket: {TICKET}")));
        }
    }
    // Without an auth server the refresh fails, and failures are logged.
    let key = file_store::value(directory.path(), file_store::PRIVATE).unwrap();
    let metrics =
        [auth_server.admin(), sidecar.admin()].map(|admin| admin_get(admin, "/metrics").text());
    let pages = [auth_server.admin(), sidecar.admin()].map(|admin| admin_get(admin, "/").text());
    has(&pages[1], "app-secret = \"(set)\"");
    let bearer = format!("Authorization: Bearer {token}");
    let explained = sidecar.explain(&["/orders/list"], &[bearer]);
    assert!(explained.stdout.contains("✓ signature"), "{explained:?}");
    let auth_server_output = auth_server.process().output();
    drop(auth_server);
    sidecar.until_logged("WARN sidecar::issuers::task");
    let outputs = [
        auth_server_output,
        sidecar.process().output(),
        metrics.concat(),
        pages.concat(),
    ];
    let signature = token.rsplit('.').next().unwrap_or_default();
    assert!(!(explained.stdout + &explained.stderr).contains(signature));

    let mut secrets = vec![PASSWORD, CODE, TICKET, WRONG_SECRET, &app_secret];
    for token in [&token, &forged] {
        secrets.extend(token.split('.').skip(1));
    }
    // The body of the PEM, or the shared secret: any line of it.
    let body = key.lines().filter(|line| !line.starts_with("-----"));
    secrets.extend(body.filter(|line| line.len() > 20));
    secrets.retain(|secret| outputs.iter().any(|output| output.contains(secret)));
    secrets.into_iter().map(str::to_owned).collect()
}

/// A secret that no output may hold.
const IN_URL: &str = "hush-url-55";

/// The program and a setting of it with a URL, for which `{}` stands; of the sidecar with what the
/// setting needs beside it.
const URL_SETTINGS: [(Program, &[&str]); 10] = {
    use Program::{AuthServer, Sidecar};
    [
        (
            Sidecar,
            &["--auth-server={}", "--app-id=a", "--app-secret=b"],
        ),
        (Sidecar, &["--issuer-url={}", "--audience=a"]),
        (Sidecar, &["--jwks={}", "--issuer=i", "--audience=a"]),
        (Sidecar, &["--upstream={}", ISSUER[0], ISSUER[1], ISSUER[2]]),
        (Sidecar, &["--resource={}", ISSUER[0], ISSUER[1], ISSUER[2]]),
        (
            Sidecar,
            &["--cors-origin={}", ISSUER[0], ISSUER[1], ISSUER[2]],
        ),
        (AuthServer, &["--store={}"]),
        (AuthServer, &["--registry={}", "--advertise=a:1"]),
        (AuthServer, &["--issuer={}"]),
        (AuthServer, &["--cors-origin={}"]),
    ]
};
const ISSUER: [&str; 3] = [
    "--jwks=http://127.0.0.1:9/keys",
    "--issuer=i",
    "--audience=a",
];

/// URLs with a secret, usable or not.
const SECRET_URLS: [&str; 14] = [
    "http://127.0.0.1:9/auth?hush-url-55",
    "http://127.0.0.1:9?key=hush-url-55",
    "https://127.0.0.1:9/auth#hush-url-55",
    "https:/127.0.0.1:9/auth?hush-url-55",
    "http://me:hush-url-55@127.0.0.1:9/auth",
    "http://hush-url-55@127.0.0.1:9",
    "http://me:hush-url-55/x@127.0.0.1:9/auth",
    "http://me:hush-url-55?x@127.0.0.1:9/auth",
    "dns://127.0.0.1:9/auth?hush-url-55",
    "nacos://127.0.0.1:9/auth?group=hush-url-55",
    "nacos://127.0.0.1:9/auth?hush-url-55",
    "redis://127.0.0.1:9/0?hush-url-55",
    "redis://me:hush-url-55@127.0.0.1:9",
    "redis+unix:///nowhere?pass=hush-url-55",
];

#[test]
fn no_secret_in_the_url_of_a_setting_is_printed() {
    for (program, setting) in URL_SETTINGS {
        for url in SECRET_URLS {
            let flags: Vec<_> = setting.iter().map(|flag| flag.replace("{}", url)).collect();
            let end = program
                .command()
                .arguments(["check"])
                .arguments(&flags)
                .run();
            let printed = format!("{}{}", end.stdout, end.stderr);
            assert!(!printed.contains(IN_URL), "{flags:?}: {printed}");
            assert!(!printed.is_empty(), "{flags:?}");
        }
    }
    for (member, url) in [
        ("jwks", "https://127.0.0.1:9/keys?hush-url-55"),
        ("issuer", "https://127.0.0.1:9/?hush-url-55"),
        ("keys-proxy", "http://me:hush-url-55@127.0.0.1:9"),
    ] {
        let table = format!("[[issuer]]\nname = 'a'\naudience = ['b']\n{member} = '{url}'\n");
        let more = match member {
            "jwks" => "issuer = 'i'\n",
            "issuer" => "discovery = true\n",
            _ => "issuer = 'https://127.0.0.1:9'\ndiscovery = true\n",
        };
        let end = tests::actors::sidecar::check(&(table + more), &[]);
        let printed = format!("{}{}", end.stdout, end.stderr);
        assert!(!printed.contains(IN_URL), "{printed}");
        assert!(printed.contains("127.0.0.1:9"), "{printed}");
    }
}

#[test]
fn no_secret_in_the_url_of_keys_is_in_log_page_or_metrics() {
    let service = EchoService::start();
    let jwks = format!("--jwks=http://127.0.0.1:9/keys?key={IN_URL}");
    let plan = SidecarPlan::of_issuer(&service, [&*jwks, "--issuer=i", "--audience=a"]);
    let sidecar = plan.start();
    sidecar.until_logged("not fetched");
    let mut printed = sidecar.process().output();
    for path in ["/", "/readyz", "/metrics"] {
        printed += &admin_get(sidecar.admin(), path).text();
    }
    let token = Forge::new(SigningType::Ecdsa).token(clock::now(), &json!({}));
    let line = format!("Authorization: Bearer {token}");
    printed += &sidecar.explain(&["/orders/list"], &[line]).stdout;
    assert!(!printed.contains(IN_URL), "{printed}");
    assert!(printed.contains("http://127.0.0.1:9/keys"), "{printed}");
}
