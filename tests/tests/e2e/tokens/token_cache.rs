//! The verified-token cache, from outside: the work that it saves, and the tokens that it must not
//! accept (lesson B19).

use serde_json::json;
use tests::actors::stack::ForgedStack;
use tests::wire::clock;

const HITS: &str = "postern_sidecar_token_cache_hits_total";
const MISSES: &str = "postern_sidecar_token_cache_misses_total";

#[test]
fn a_repeated_token_is_cached_for_the_same_user() {
    let stack = ForgedStack::start();
    let named = json!({"nickName": "\u{7ba1}\u{7406} \u{1f600}"});
    let token = stack.forge.token(clock::now(), &named);
    let client = stack.sidecar.bearing(&token);
    let responses = [(); 3].map(|()| {
        assert_eq!(client.status("/list"), 200);
        stack.service.last_request().header("x-current-user")
    });
    assert_eq!(responses[0].len(), 1);
    assert!(responses.iter().all(|response| *response == responses[0]));
    let counted = [MISSES, HITS].map(|name| stack.sidecar.metric(name));
    assert_eq!(counted, [Some(1), Some(2)]);
}
