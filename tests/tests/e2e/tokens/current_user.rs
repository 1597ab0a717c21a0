//! The current user (contract §2.5, §4.2), on the auth server and on a sidecar.

use serde_json::{Value, json};
use tests::actors::auth_server::USER_DETAILS;
use tests::actors::client::Client;
use tests::actors::stack::{ForgedStack, Stack};
use tests::wire::clock;

/// The fields of contract §2.5, in its order.
const FIELDS: &str = "id tenantId clientId signMethod nickName avatar anId anTitle telephone email account \
     accountSecret status appId openId userType sex deptId deptTitle postId postTitle grade \
     isSuperAdmin delFlag canDel expireTime other";

#[test]
fn contract_4_2_rules_2_and_3_both_programs_have_the_same_user() {
    let stack = Stack::start();
    let token = stack.auth_server.login();
    let [one, other] = both(&stack, &token).map(|client| client.get(USER_DETAILS));
    assert_eq!((one.status(), one.json()), (200, other.json()));
    assert_eq!(one.json()["msg"], "operation succeeded");
    let user = &one.json()["data"];
    let found = user.as_object().map(serde_json::Map::len);
    assert_eq!((found, FIELDS.split(' ').count()), (Some(27), 27));
    for name in FIELDS.split(' ') {
        let has_value = ["id", "nickName", "account", "userType"].contains(&name);
        assert_eq!(user[name].is_string(), has_value, "{name}");
    }
    // No cache is to keep the user (§4.2), and a ticket is allowed and not required (§5.2).
    for client in both(&stack, &token) {
        let request = client
            .request("GET", USER_DETAILS)
            .line("Verified-Ticket: any");
        let response = client.send(&request);
        assert_eq!(response.status(), 200);
        assert_eq!(response.header("cache-control"), ["no-store"]);
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn contract_4_2_rule_1_the_user_is_resolved_from_the_token() {
    let stack = ForgedStack::start();
    let changes = json!({
        "username": "žofie", "nickName": "小明 😀", "userId": "42",
        "extraInfo": {"avatar": "https://x/a.png", "telephone": "+49 30", "userType": "staff", "tenantId": "t-7", "grade": "3"},
    });
    let token = stack.forge.token(clock::now(), &changes);
    let user = stack.sidecar.bearing(&token).get(USER_DETAILS).json()["data"].clone();
    let expected = json!({
        "id": "42", "account": "žofie", "nickName": "小明 😀", "avatar": "https://x/a.png",
        "telephone": "+49 30", "userType": "staff", "tenantId": "t-7", "grade": "3",
    });
    for name in FIELDS.split(' ') {
        let expected = expected.get(name).unwrap_or(&Value::Null);
        assert_eq!(&user[name], expected, "{name}");
    }
}

#[test]
fn contract_4_2_only_get_and_head_are_allowed() {
    let stack = Stack::start();
    let token = stack.auth_server.login();
    for client in both(&stack, &token) {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            let response = client.send(&client.request(method, USER_DETAILS));
            assert_eq!(response.verdict(), "405 method_not_allowed", "{method}");
        }
        let head = client.send(&client.request("HEAD", USER_DETAILS));
        assert_eq!((head.status(), head.body.len()), (200, 0));
    }
    assert_eq!(stack.service.requests().len(), 0);
}

fn both(stack: &Stack, token: &str) -> [Client; 2] {
    [
        stack.auth_server.anonymous().bearing(token),
        stack.sidecar.bearing(token),
    ]
}
