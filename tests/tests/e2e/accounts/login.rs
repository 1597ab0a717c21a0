//! Login (contract §2.2, §2.3, §2.4, §4.1).

use serde_json::{Value, json};
use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, USER_DETAILS, credentials};
use tests::actors::client::Request;
use tests::actors::sessions::PASSWORD;
use tests::actors::token_forge::{header_of, payload_of};
use tests::actors::users_file::UsersFile;
use tests::tables::template;
use tests::tables::{self, LoginRow, LoginTable, Verdicts};
use tests::wire::clock;

#[test]
fn contract_4_1_rule_2_any_login_is_the_built_in_user() {
    let server = AuthServer::start();
    let [alice, bob, root] = [("alice", "a"), ("bob", "b"), ("root", "toor")];
    let user = |(account, password)| {
        let token = server.token_of(account, password);
        server.anonymous().bearing(&token).get(USER_DETAILS).json()["data"].clone()
    };
    assert_eq!(user(alice), user(bob));
    assert_eq!(user(alice), user(root));
}

#[test]
fn contract_4_1_rule_1_every_row_of_the_login_table() {
    let server = AuthServer::start();
    let mut verdicts = Verdicts::default();
    for row in tables::load::<LoginTable>("bad_logins.toml").login {
        let response = server.anonymous().send(&login_request(&row));
        let verdict = response.verdict();
        let token_leaked = row.expect != "200" && response.text().contains("access_token");
        let difference = if token_leaked {
            Some("a token was given".to_owned())
        } else {
            (verdict != row.expect).then(|| format!("{verdict}, not {} ({})", row.expect, row.why))
        };
        verdicts.row(&row.name, difference);
    }
    assert!(verdicts.checked() >= 30, "the table has lost rows");
    let found = server.anonymous().post(LOGIN, &credentials()).status();
    assert_eq!(found, 200, "the server still serves");
    verdicts.conclude();
}

fn login_request(row: &LoginRow) -> Request {
    let request = Request::new(&row.method, format!("/auth{LOGIN}"));
    let request = request.lines(row.headers.iter().map(String::as_str));
    match &row.body {
        Some(body) => request.body(template::fill(body, |_| None)),
        None => request,
    }
}

#[test]
fn contract_7_an_empty_login_is_login_information_incomplete() {
    let server = AuthServer::start();
    let response = server
        .anonymous()
        .post(LOGIN, &json!({"username": "alice"}));
    assert_eq!(response.verdict(), "400 login_incomplete");
    assert_eq!(response.json()["msg"], "login information incomplete");
}

#[test]
fn contract_2_3_2_4_4_1_and_8_a_login_s_response_and_token() {
    let server = AuthServer::start();
    let before = clock::now();
    let mut response = server.anonymous().post(LOGIN, &credentials()).json();
    let token = response["data"]["access_token"].take();
    let token = token.as_str().unwrap();
    let mut claims = payload_of(token);
    let name = claims["nickName"].clone();
    assert!(name.as_str().is_some_and(|name| !name.is_empty()));
    let info = json!({
        "userType": "member", "nickName": name, "tenantId": null, "telephone": null, "avatar": null,
        "grade": null
    });
    let data = json!({
        "access_token": null, "token_type": null, "refresh_token": null, "expires_in": null,
        "scope": null, "path": null, "info": info
    });
    let expected = json!({"success": true, "status": 200, "msg": "login succeeded", "data": data});
    assert_eq!(response, expected);
    let header = header_of(token);
    let found = (&header["alg"], &header["typ"]);
    assert_eq!(found, (&json!("RS256"), &json!("JWT")));
    assert!(header["kid"].as_str().is_some_and(|kid| !kid.is_empty()));
    let times = ["iat", "nbf", "exp"].map(|time| claims[time].take().as_i64().unwrap());
    assert!((before..=clock::now()).contains(&times[0]) && times[1] <= times[0]);
    assert_eq!(times[2] - times[0], 18_000);
    let id = claims["jti"].take();
    assert!(id.is_string() && id != payload_of(&server.login())["jti"]);
    // Values that are absent are left out.
    let expected = json!({
        "iss": "auth", "sub": "1", "userId": "1", "username": "admin", "nickName": name,
        "extraInfo": {"userType": "member"}, "iat": null, "nbf": null, "exp": null, "jti": null
    });
    assert_eq!(claims, expected);
}

#[test]
fn contract_2_2_the_verification_code_is_not_evaluated() {
    let users = UsersFile::with("alice", PASSWORD);
    for users in ["builtin".to_owned(), users.location()] {
        let server = AuthServerPlan::new().flags(["--users", &users]).ready();
        for code in [json!("287082"), json!(287_082), json!(""), Value::Null] {
            let body = json!({"username": "alice", "password": PASSWORD, "code": code});
            let found = server.anonymous().post(LOGIN, &body).status();
            assert_eq!(found, 200, "{users}: {code}");
        }
    }
}
