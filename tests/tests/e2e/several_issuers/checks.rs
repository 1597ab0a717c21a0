//! Checks of the tables: unusable ones, `sidecar check`, and the documented ones.

use std::fs;

use tests::fake_auth_server::json_response;
use tests::programs::{Program, repository};
use tests::tables::Verdicts;

use super::published::{AWAY, Issuers, check};

#[test]
fn check_prints_an_equal_file() {
    let issuers = Issuers::publish(&[]);
    let first = check(&issuers.file(), &issuers.tables(), &[]);
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    let again = check(&issuers.file(), &first.stdout, &[]);
    assert_eq!(
        (again.code, &again.stdout),
        (Some(0), &first.stdout),
        "{}",
        again.stderr
    );

    let own = "auth-server = 'http://127.0.0.1:1/auth'\napp-id = 'a'\n[[issuer]]\nname = 'members'\nissuer = 'auth'\naudience = ['orders']\nauth-server = true\nuser-prefix = ''\n";
    let cluster = issuers.of("cluster").table();
    let own = format!("{own}{cluster}token-header = 'Cf-Access-Jwt-Assertion'\n");
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
    issuers.of("cluster").replies(json_response(AWAY, "{}"));
    let end = check(&issuers.file(), &issuers.tables(), &service);
    assert_eq!(end.code, Some(69), "{}{}", end.stdout, end.stderr);
    let file = "\n[[issuer]]\nname = 'gone'\nissuer = 'i'\naudience = ['a']\nuser-prefix = 'gone:'\njwks-file = '/nowhere'";
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
        let end = Program::Sidecar.command()
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
        let end = Program::Sidecar
            .command()
            .arguments(["check", "--config", issuers.file().to_str().unwrap()])
            .run();
        assert_eq!(end.code, Some(0), "{config}\n{}", end.stderr);
    }
}
