//! The audience of tokens (RFC 7519 §4.1.3): a sidecar is known by `--audience`, or by the names of
//! its application at the auth server.

use serde_json::json;
use tests::actors::applications::register;
use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::client::Client;
use tests::actors::process::{CommandLine, Process};
use tests::actors::programs::Program;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::ForgedStack;
use tests::actors::users_file::UsersFile;
use tests::services::echo_service::EchoService;
use tests::wait;

const PASSWORD: &str = "enchantress";

/// A sidecar started with the README's line, and its client.
struct Readme {
    _secret: tempfile::NamedTempFile,
    process: Process,
    client: Client,
}

impl Readme {
    fn start(server: &AuthServer, service: &EchoService) -> Self {
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), register(server, "orders")).unwrap();
        let mut process = CommandLine::new(Program::Sidecar.path())
            .arguments(["serve", "--auth-server", &server.url()])
            .arguments(["--app-id", "orders", "--app-secret-file"])
            .arguments([secret.path()])
            .arguments(["--upstream", &service.url()])
            .arguments(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .start();
        let address = process.announced("listening on ").parse().unwrap();
        let client = Client::anonymous(Program::Sidecar, address, "");
        wait::until("the sidecar to have keys", || {
            client.bearing("x").verdict("/") != "503 auth_keys_unavailable"
        });
        Self {
            _secret: secret,
            process,
            client,
        }
    }
}

/// Gives users an audience, for which no command has a flag.
fn users(audiences: &[(&str, &str)]) -> UsersFile {
    let users = UsersFile::with("ada", PASSWORD);
    for (account, _) in audiences {
        users.add(account, PASSWORD, &[]);
    }
    let mut text = std::fs::read_to_string(users.path()).unwrap();
    for (account, audience) in audiences {
        let name = format!("account = \"{account}\"\n");
        text = text.replace(&name, &format!("{name}audience = [\"{audience}\"]\n"));
    }
    std::fs::write(users.path(), text).unwrap();
    users
}

#[test]
fn rfc_7519_4_1_3_the_readme_s_sidecar_rejects_other_audiences() {
    let users = users(&[("bob", "billing"), ("eve", "orders")]);
    let server = AuthServerPlan::new()
        .flags(["--users", &users.location()])
        .flags(["--store-poll-interval", "1"])
        .ready();
    let service = EchoService::start();
    let sidecar = Readme::start(&server, &service);
    let machine = |id: &str, audience: &str| {
        let secret = server.done(&["application", "add", "--app-id", id, "--audience", audience]);
        wait::until("the server to know the application", || {
            let response = server.grant(id, &secret, "");
            (response.status() == 200).then(|| response.access_token())
        })
    };
    let (jobs, bills) = (machine("jobs", "orders"), machine("bills", "billing"));
    let user = |account| server.token_of(account, PASSWORD);
    for (token, expected, why) in [
        (user("ada"), "200", "the contract's token has none"),
        (user("eve"), "200", "a user's, for this application"),
        (user("bob"), "401 token_audience", "a user's, for another"),
        (jobs, "200", "an application's, for this one"),
        (bills, "401 token_audience", "an application's, for another"),
    ] {
        assert_eq!(
            sidecar.client.bearing(&token).verdict("/"),
            expected,
            "{why}"
        );
    }
    let output = sidecar.process.output();
    assert!(
        !output.contains("WARN"),
        "nothing is wrong with it: {output}"
    );
}

#[test]
fn without_audience_the_names_of_the_application_count() {
    let stack = ForgedStack::with(|plan| plan.application("shop", "any"));
    for (aud, expected) in [
        (json!("shop"), "200"),
        (json!(["billing", "orders"]), "200"),
        (json!("billing"), "401 token_audience"),
    ] {
        let token = stack
            .forge
            .token(tests::wire::clock::now(), &json!({"aud": aud}));
        assert_eq!(stack.sidecar.verdict_of(&token), expected, "{aud}");
    }
    let token = stack
        .forge
        .token(tests::wire::clock::now(), &json!({"aud": "billing"}));
    let bearer = format!("Authorization: Bearer {token}");
    let end = stack.sidecar.explain(&["/orders/1"], &[bearer]);
    let cause = "its `aud` is \"billing\"; --audience is not set, so the names of the application count: \"shop\", \"orders\"";
    assert!(end.stdout.contains(cause), "{}", end.stdout);
    // A service at the root has no name, which is not the name of an empty audience.
    let root = stack.plan(&stack.service.url()).app_name("").ready();
    let token = stack
        .forge
        .token(tests::wire::clock::now(), &json!({"aud": ""}));
    assert_eq!(root.verdict_of(&token), "401 token_audience");
}

#[test]
fn a_server_whose_tokens_no_setting_fits_is_named() {
    let server = AuthServerPlan::new()
        .flags(["--audience", "cluster"])
        .ready();
    let service = EchoService::start();
    let named = "tokens of this auth server are for cluster, and get 401 token_audience";
    let sidecar = Readme::start(&server, &service);
    assert_eq!(sidecar.process.until_logged(named), 1);
    let verdict = sidecar.client.bearing(&server.login()).verdict("/");
    assert_eq!(verdict, "401 token_audience");
    let secret = register(&server, "check");
    let online = |more: &[&str]| {
        Program::Sidecar
            .command()
            .arguments([
                "check",
                "--online",
                "--strict",
                "--auth-server",
                &server.url(),
            ])
            .arguments(["--upstream", &service.url(), "--app-id", "check"])
            .arguments(more.iter().copied())
            .environment("POSTERN_APP_SECRET", &*secret)
            .run()
    };
    let end = online(&[]);
    assert_eq!(end.code, Some(78), "{}", end.stdout);
    assert!(end.stdout.contains(named), "{}", end.stdout);
    for more in [["--audience", "cluster"], ["--app-name", "cluster"]] {
        let end = online(&more);
        assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
    }
}

#[test]
fn each_table_has_its_own_audience() {
    let server = AuthServerPlan::new()
        .flags(["--audience", "orders"])
        .ready();
    let service = EchoService::start();
    let jwks = format!("{}/.well-known/jwks.json", server.url());
    let file = |audience: &str| {
        format!(
            "[[issuer]]\nname = 'members'\nissuer = 'auth'\nauth-server = true\nuser-prefix = ''\n{audience}\n\
             [[issuer]]\nname = 'other'\nissuer = 'other'\njwks = '{jwks}'\naudience = ['stock']\nuser-prefix = 'o:'\n"
        )
    };
    for (audience, app_name, expected) in [
        ("", "orders", "200"),
        ("", "stock", "401 token_audience"),
        ("audience = ['orders']", "stock", "200"),
        ("audience = ['stock']", "orders", "401 token_audience"),
    ] {
        let sidecar = SidecarPlan::new(&service, &server.url())
            .config(&file(audience))
            .application("own", "not-registered")
            .app_name(app_name)
            .with_all_keys();
        let verdict = sidecar.bearing(&server.login()).verdict("/list");
        assert_eq!(verdict, expected, "{audience} {app_name}");
    }
}
