//! The verified-token cache, from outside: the work that it saves, and the tokens that it must not
//! accept (lesson B19).

use serde_json::json;
use tests::auth_server::USER_DETAILS;
use tests::client::verdict;
use tests::clock;
use tests::stack::ForgedStack;
use tests::wait;

const HITS: &str = "postern_sidecar_token_cache_hits_total";
const MISSES: &str = "postern_sidecar_token_cache_misses_total";

#[test]
fn a_repeated_token_is_cached_for_the_same_user() {
    let stack = ForgedStack::start();
    let named = json!({"nickName": "\u{7ba1}\u{7406} \u{1f600}"});
    let token = stack.forge.token(clock::now(), &named);
    let client = stack.sidecar.bearing(&token);
    let responses = [(); 3].map(|()| {
        assert_eq!(client.get("/list").status(), 200);
        stack.service.last_request().header("x-current-user")
    });
    assert_eq!(responses[0].len(), 1);
    assert!(responses.iter().all(|response| *response == responses[0]));
    let counted = [MISSES, HITS].map(|name| stack.sidecar.metric(name));
    assert_eq!(counted, [Some(1), Some(2)]);
}

#[test]
fn a_token_that_expires_between_two_requests_is_rejected() {
    let stack = ForgedStack::with_flags(["--leeway", "0"]);
    let soon = json!({"exp": clock::now() + 3});
    let token = stack.forge.token(clock::now(), &soon);
    let client = stack.sidecar.bearing(&token);
    assert_eq!(client.get("/list").status(), 200);
    let rejected = wait::until("the end of the token", || {
        let verdict = verdict(&client.get("/list"));
        (verdict != "200").then_some(verdict)
    });
    assert_eq!(rejected, "401 token_expired");
    assert_eq!(verdict(&client.get(USER_DETAILS)), "401 token_expired");
    let misses = stack.sidecar.metric(MISSES);
    assert_eq!(misses, Some(1), "it was known all the time");
}
