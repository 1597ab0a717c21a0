//! The receiver: issuers with equal names, several servers, stores that fail, and floods.

use std::thread;
use std::time::Instant;

use rusqlite::Connection;
use tests::actors::auth_server::{TOKEN_REVOKED, admin_get};
use tests::actors::expect::has;
use tests::services::fake_auth_server::json_response;
use tests::services::redis_server::Redis;
use tests::wait;
use tests::wire::clock;
use tests::wire::free_address::free_address;

use super::super::several_issuers::published::AWAY;
use super::{Foreign, Form, USUAL_KEY, lines, log_out};

#[test]
fn a_logout_ends_what_was_issued_before_its_commit() {
    let foreign = Foreign::publish();
    let home = tempfile::tempdir().unwrap();
    let server = foreign.server().directory(home.path()).ready();
    let sidecar = foreign.sidecar(&server).with_all_keys();
    let session = foreign.session("twin", "s", "u");
    assert_eq!(log_out(&server, &session, "i"), 200);
    let store = Connection::open(home.path().join("store.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    let token = thread::scope(|scope| {
        let logout = scope.spawn(|| log_out(&server, &session, "j"));
        let sent = clock::now();
        // The store cannot be written to meanwhile.
        wait::until("a later second", || clock::now() > sent + 2);
        let token = session.access();
        store.execute_batch("ROLLBACK").unwrap();
        assert_eq!(logout.join().unwrap(), 200);
        token
    });
    sidecar.until_revoked(&token);
}

#[test]
fn the_names_of_a_statement_for_another_table_are_logged() {
    let foreign = Foreign::publish();
    let server = foreign.server().ready();
    let session = foreign.session("idp", "s", "u");
    for (claim, name) in [("iss", "https://idp.example/"), ("aud", "other")] {
        let mut claims = session.claims(Form::Logout, "j");
        claims[claim] = name.into();
        let statement = session.signed(USUAL_KEY, Form::Logout.header(), &claims.to_string());
        assert_eq!(Form::Logout.send(&server, &statement).status(), 400);
        server.until_logged(&format!("{claim}=\"{name}\""));
    }
}

#[test]
fn issuers_with_equal_names_end_their_own_sessions_alone() {
    let foreign = Foreign::publish();
    let server = foreign.server().ready();
    let own = server.login();
    let sidecar = foreign.sidecar(&server).with_all_keys();
    let sessions = |name| ["s", "t"].map(|sid| foreign.session(name, sid, "10001"));
    let (idp, twin) = (sessions("idp"), sessions("twin"));
    let [ended, stays] = idp.each_ref().map(|session| session.access());
    let of_twin = twin.each_ref().map(|session| session.access());
    assert_eq!(log_out(&server, &idp[0], "1"), 200);
    sidecar.until_revoked(&ended);
    for token in [&stays, &of_twin[0], &of_twin[1]] {
        assert_eq!(sidecar.verdict_of(token), "200");
    }
    // At the other one all of the user ends, and a later login is a new one.
    assert_eq!(log_out(&server, &twin[0], "1"), 200);
    for token in &of_twin {
        sidecar.until_revoked(token);
    }
    assert_eq!(sidecar.verdict_of(&stays), "200");
    wait::until("a token of a later second", || {
        sidecar.verdict_of(&twin[0].access()) == TOKEN_REVOKED
            || sidecar.verdict_of(&twin[1].access()) == "200"
    });
    assert!(server.accepts(&own), "the account 10001 of this server");
}

#[test]
fn an_issuer_tries_again_while_the_store_or_its_keys_are_away() {
    let address = free_address();
    let Some(redis) = Redis::start_on(address) else {
        return;
    };
    let foreign = Foreign::publish();
    // From the start of the servers on, which fetch keys then.
    let twin = foreign.session("twin", "s", "u");
    twin.at.replies(json_response(AWAY, "{}"));
    let plan = || foreign.server().store(redis.url());
    let [server, other] = [plan().ready(), plan().ready()];
    let until_row = |keys: &str, part: &str| {
        let row = format!("{:<26} {keys:<8} https://twin.example: ", "logout_keys");
        wait::until(part, || {
            let page = admin_get(server.admin(), "/").text();
            let mut lines = page.lines().filter(|line| line.starts_with(&row));
            lines.any(|line| line.contains(part)).then_some(page)
        })
    };
    let session = foreign.session("idp", "s", "u");
    assert_eq!(
        log_out(&server, &foreign.session("idp", "r", "u"), "i"),
        200
    );
    // A server that has not polled the store since.
    let used = Form::Logout.send(&other, &session.ended(Form::Logout, "i"));
    let error = used.json()["error"].clone();
    assert_eq!((used.status(), error), (400, "invalid_request".into()));
    assert_eq!(log_out(&server, &twin, "i"), 503);
    until_row("warn", "keys not fetched yet; the fetch at 20");
    twin.at.replies(json_response("200 OK", &twin.at.jwks()));
    wait::until("its keys", || log_out(&server, &twin, "i") == 200);
    let page = until_row("ok", "keys fetched ");
    let (_, counts) = page.split_once("# Logouts at other issuers\n").unwrap();
    has(counts, format!("{:<26} 2", "ended"));
    drop(redis);
    for (form, jti) in [(Form::Logout, "j"), (Form::Event, "k")] {
        let away = form.send(&server, &session.ended(form, jti));
        assert_eq!(away.status(), 503, "{form:?}: {}", away.text());
        assert_eq!(away.header("retry-after").len(), 1, "{form:?}");
    }
    let _redis = Redis::start_on(address).unwrap();
    wait::until("the statement to be stored", || {
        log_out(&server, &session, "j") == 200
    });
    wait::until("the list", || lines(&server).len() == 3);
}

#[test]
fn forged_statements_reach_no_store_and_no_issuer() {
    const FORGED: usize = 400;
    let foreign = Foreign::publish();
    let limit = ["--login-rate-limit", "10"];
    let server = foreign.server().flags(limit).ready();
    let session = foreign.session("idp", "s", "u");
    assert_eq!(log_out(&server, &session, "0"), 200);
    let fetches = session.at.server.retrievals().len();
    let forge = |number: usize| {
        let victim = foreign.session("idp", &format!("v{number}"), "u");
        // An unknown name of a key waits for a fetch, which has its pause.
        let kid = match number % (FORGED / 8) {
            0 => format!("k{number}"),
            _ => "ec".to_owned(),
        };
        let header = format!(r#"{{"alg":"ES256","typ":"logout+jwt","kid":"{kid}"}}"#);
        let claims = victim
            .claims(Form::Logout, &format!("f{number}"))
            .to_string();
        victim.signed("foreign ES256", &header, &claims)
    };
    let forged: Vec<_> = (0..FORGED).map(forge).collect();
    let begun = Instant::now();
    thread::scope(|scope| {
        for part in forged.chunks(FORGED / 4) {
            let server = &server;
            scope.spawn(move || {
                for token in part {
                    let status = Form::Logout.send(server, token).status();
                    assert!([400, 429].contains(&status), "{status}");
                }
            });
        }
        // Those of the issuer come through meanwhile.
        for number in 1..=20 {
            let real = foreign.session("idp", &format!("s{number}"), "u");
            assert_eq!(
                log_out(&server, &real, &number.to_string()),
                200,
                "{number}"
            );
        }
    });
    assert_eq!(lines(&server).len(), 21);
    let fetched = session.at.server.retrievals().len() - fetches;
    let pauses = usize::try_from(begun.elapsed().as_secs() / 2).unwrap();
    assert!(
        fetched <= pauses + 2,
        "{fetched} fetches of keys in {pauses} pauses"
    );
    // Over the limit an unknown name of a key begins no fetch, and waits for none.
    let fetches = session.at.server.retrievals().len();
    for _ in 0..3 {
        assert_eq!(Form::Logout.send(&server, &forged[0]).status(), 429);
    }
    let fetched = session.at.server.retrievals().len() - fetches;
    assert!(fetched <= 1, "{fetched} fetches of keys");
}
