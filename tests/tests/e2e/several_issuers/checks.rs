//! Checks of the tables: unusable ones, `sidecar check`, and the documented ones.

use std::fs;

use tests::fake_auth_server::json_response;
use tests::programs::{Program, repository};

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
    let file = "\n[[issuer]]\nname = 'gone'\nissuer = 'i'\naudience = ['a']\nuser-prefix = 'gone:'\njwks = '/nowhere'";
    let with_file = issuers.of("shop").table() + file;
    let end = check(&issuers.file(), &with_file, &["--strict"]);
    assert_eq!(end.code, Some(78), "{}{}", end.stdout, end.stderr);
    assert!(
        end.stderr.contains("gone") && end.stderr.contains("/nowhere"),
        "{}",
        end.stderr
    );
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
