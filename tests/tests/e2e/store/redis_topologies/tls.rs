//! Redis over TLS: one server, Sentinels and the servers that they watch, nodes of a cluster.

use std::path::Path;

use tests::wire::certificates::{Authority, Certificate};

use super::*;

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn trusting(authority: &Authority) -> Vec<String> {
    flag("--store-ca", path(&authority.file())).to_vec()
}

fn showing(client: &Certificate, authority: &Authority) -> Vec<String> {
    [
        trusting(authority),
        flag("--store-client-cert", path(&client.cert)).to_vec(),
        flag("--store-client-key", path(&client.key)).to_vec(),
    ]
    .concat()
}

/// Returns the flags of a client without a certificate, and of one that trusts `other`.
fn untrusted_clients(authority: &Authority, other: &Authority) -> [Vec<String>; 2] {
    let distrusting = showing(&authority.issue("client"), other);
    [trusting(authority), distrusting]
}

/// Checks that both servers learn of a next key that a command stored: they read the writable node.
fn assert_both_hear_of_a_next_key(servers: &[AuthServer; 2], url: &str, flags: &[String]) {
    wait::until("a rotation", || {
        keys(&["rotate"], url, flags).code == Some(0)
    });
    for server in servers {
        wait::until("the next key in the key set", || {
            let set = server.anonymous().get("/.well-known/jwks.json").json();
            (set["keys"].as_array()?.len() == 2).then_some(())
        });
    }
}

#[test]
fn a_store_over_tls_with_a_client_certificate() {
    let (authority, other) = (Authority::new(), Authority::new());
    let Some(redis) = Redis::start_with_tls(&authority) else {
        return;
    };
    let url = redis.url();
    let flags = showing(&authority.issue("client"), &authority);
    let server = plan(&url, &flags).ready();
    assert!(server.accepts(&server.login()));
    assert!(redis.pair().0.is_some());
    assert_eq!(keys(&["show"], &url, &flags).code, Some(0));

    let remedies = ["; --store-client-cert", "; --store-ca names a file"];
    for (flags, remedy) in untrusted_clients(&authority, &other).iter().zip(remedies) {
        let end = keys(&["show"], &url, flags);
        end.says(69, &url);
        end.says(69, remedy);
    }
}

#[test]
fn replaced_certificates_are_used_for_new_connections() {
    let (first, second) = (Authority::new(), Authority::new());
    let Some(redis) = Redis::start_with_tls(&first) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let put = |authority: &Authority| {
        let client = authority.issue("client");
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        [
            flag(
                "--store-ca",
                file(&directory, "ca", &read(&authority.file())),
            ),
            flag(
                "--store-client-cert",
                file(&directory, "cert", &read(&client.cert)),
            ),
            flag(
                "--store-client-key",
                file(&directory, "key", &read(&client.key)),
            ),
        ]
        .concat()
    };
    let server = plan(&redis.url(), &put(&first)).ready();

    // From here on the store has a certificate of the second authority, and requires one.
    let presented = second.issue("redis");
    redis.command(&[
        "CONFIG",
        "SET",
        "tls-ca-cert-file",
        &path(&second.file()),
        "tls-cert-file",
        &path(&presented.cert),
        "tls-key-file",
        &path(&presented.key),
    ]);
    wait_for_store_up(&server, 0);
    file(&directory, "key", "half a key");
    let log = |words: &str| server.process().stderr().matches(words).count();
    wait::until("the half-written key in the log", || {
        log("for the store: unusable") > 0
    });
    put(&second);
    wait_for_store_up(&server, 1);
    // The log follows the metric.
    wait::until("the new certificates in the log", || {
        log("for the store: the new content") == 1
    });
    assert_eq!(log("half a key"), 0);
}

#[test]
fn a_master_that_dies_is_replaced_and_nothing_is_lost_or_forked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let Some(mut redis) = Watched::start_with_tls(&authority) else {
        return;
    };
    let (url, directory) = (redis.url(), tempfile::tempdir().unwrap());
    assert!(url.starts_with("rediss+sentinel://"), "{url}");
    let password = sentinel_flags(&directory);
    let flags = [
        &password[..],
        &showing(&authority.issue("client"), &authority),
    ]
    .concat();
    let servers = two_servers(&url, &flags);
    let (token, pair) = (servers[0].login(), redis.master().unwrap().pair());
    assert!(pair.0.is_some());
    for untrusted in untrusted_clients(&authority, &other) {
        let end = keys(&["show"], &url, &[&password[..], &untrusted].concat());
        assert_eq!(end.code, Some(69), "{}", end.stderr);
    }
    let revoked = servers[0].login();
    assert_eq!(servers[0].log_out(&revoked).status(), 200);

    redis.switch();
    wait_for_the_store(&servers);
    assert_undivided(&servers, &token);
    redis.fail_over();
    wait::until("the keys on the new master", || {
        (redis.master()?.pair() == pair).then_some(())
    });
    assert_both_hear_of_a_next_key(&servers, &url, &flags);
    assert_undivided(&servers, &token);
    let started_later = plan(&url, &flags).ready();
    for server in servers.iter().chain([&started_later]) {
        assert!(!server.accepts(&revoked));
    }
}

#[test]
fn a_cluster_over_tls_and_a_master_that_dies() {
    let (authority, other) = (Authority::new(), Authority::new());
    let Some(mut redis) = Cluster::start_with_tls(&authority) else {
        return;
    };
    let url = redis.url();
    assert!(url.starts_with("rediss+cluster://"), "{url}");
    let flags = showing(&authority.issue("client"), &authority);
    let servers = two_servers(&url, &flags);
    let (token, pair) = (servers[0].login(), redis.owner().pair());
    assert!(pair.0.is_some());
    for untrusted in untrusted_clients(&authority, &other) {
        let end = keys(&["show"], &url, &untrusted);
        assert_eq!(end.code, Some(69), "{}", end.stderr);
    }

    redis.fail_over();
    wait::until("the keys on the new owner", || redis.owner().pair() == pair);
    assert_both_hear_of_a_next_key(&servers, &url, &flags);
    assert_undivided(&servers, &token);
}
