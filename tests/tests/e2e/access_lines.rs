//! The access log line of a request.

use tests::auth_server::admin_get;
use tests::raw_client::exchange;
use tests::sidecar::{Sidecar, SidecarPlan};
use tests::wait;

use super::forwarding::stack;

fn line(sidecar: &Sidecar, reason: &str) -> String {
    let reason = format!("reason=\"{reason}\"");
    wait::until("the line about the refusal", || {
        let output = sidecar.process().stderr();
        let line = output.lines().find(|line| line.contains(&reason));
        line.map(str::to_owned)
    })
}

#[test]
fn a_refusal_names_the_client_and_only_a_trusted_proxy_speaks_for_others() {
    let stack = stack();
    for (flags, client) in [
        (&[][..], "127.0.0.1"),
        (&["--trusted-proxy", "10.0.0.0/8"], "127.0.0.1"),
        (&["--trusted-proxy", "10.0.0.0/8,127.0.0.1"], "203.0.113.9"),
    ] {
        let plan = SidecarPlan::to(&stack.service.url(), &stack.auth_server.url());
        let plan = plan.flags(["--signing-type", "ecdsa"]);
        let sidecar = plan.flags(flags.iter().copied()).start().ready();
        let request = "GET /orders/list HTTP/1.1\r\nHost: a\r\n\
                       X-Forwarded-For: 1.1.1.1, 203.0.113.9, 10.0.0.7\r\n\r\n";
        exchange(sidecar.address(), "GET", request.as_bytes());
        let refused = line(&sidecar, "token_missing");
        let expected = format!(" client={client}");
        assert!(refused.contains(&expected), "{flags:?}: {refused}");
        let status = admin_get(sidecar.admin(), "/status.json").json();
        assert_eq!(status["refusals"][0]["client"], client, "{flags:?}");

        // Without a request there is no proxy to trust: the client is the peer.
        exchange(sidecar.address(), "GET", b"\0\r\n\r\n");
        let refused = line(&sidecar, "request_malformed");
        assert!(
            refused.contains(" client=127.0.0.1"),
            "{flags:?}: {refused}"
        );
    }
}
