//! Checks of the tables: unusable ones, `sidecar check`, and the documented ones.

use tests::services::fake_auth_server::json_response;

use super::published::{AWAY, Issuers, check};

#[test]
fn check_prints_an_equal_file() {
    let issuers = Issuers::publish(&[]);
    let first = check(&issuers.tables(), &[]);
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    let again = check(&first.stdout, &[]);
    let found = (again.code, &again.stdout);
    assert_eq!(found, (Some(0), &first.stdout), "{}", again.stderr);

    let own = "auth-server = 'http://127.0.0.1:1/auth'\napp-id = 'a'\n[[issuer]]\nname = 'members'\nissuer = 'auth'\naudience = ['orders']\nauth-server = true\nuser-prefix = ''\n";
    let cluster = issuers.of("cluster").table();
    let own = format!("{own}{cluster}token-header = 'Cf-Access-Jwt-Assertion'\n");
    let secret = ["--app-secret", "s"];
    let first = check(&own, &secret);
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    let again = check(&first.stdout, &secret);
    let expected = (Some(0), first.stdout);
    assert_eq!((again.code, again.stdout), expected, "{}", again.stderr);
}

#[test]
fn check_online_fetches_the_keys_of_each_issuer() {
    let issuers = Issuers::publish(&["shop", "cluster"]);
    let service = ["--online", "--upstream", &issuers.service.url()];
    let end = check(&issuers.tables(), &service);
    assert_eq!(end.code, Some(0), "{}{}", end.stdout, end.stderr);
    let found = end.stdout.matches("# online: keys from ").count();
    assert_eq!(found, 2, "{}", end.stdout);
    issuers.of("cluster").replies(json_response(AWAY, "{}"));
    let end = check(&issuers.tables(), &service);
    assert_eq!(end.code, Some(69), "{}{}", end.stdout, end.stderr);
    let file = "\n[[issuer]]\nname = 'gone'\nissuer = 'i'\naudience = ['a']\nuser-prefix = 'gone:'\njwks = '/nowhere'";
    let with_file = issuers.of("shop").table() + file;
    let end = check(&with_file, &["--strict"]);
    assert_eq!(end.code, Some(78), "{}{}", end.stdout, end.stderr);
    assert!(
        end.stderr.contains("gone") && end.stderr.contains("/nowhere"),
        "{}",
        end.stderr
    );
}
