//! A service that is away, silent or broken: the envelope with 502 or 504, and no request sent
//! twice.

use serde_json::Value;
use tests::client::verdict;
use tests::echo_service::EchoService;
use tests::free_address::free_address;
use tests::wait;

use super::forwarding::stack;

#[test]
fn a_malformed_response_is_502_with_a_reason_of_its_own() {
    let stack = stack();
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    let large = format!("X: {}\r\n", "a".repeat(2_000_000));
    for (response, cause) in [
        (
            "no http\r\n\r\n",
            "the response does not begin with a status line of HTTP/1.x",
        ),
        (&*head(&large), "the head is longer than 1 MiB"),
        (
            &head(&"X: 1\r\n".repeat(300)),
            "the head has more than 256 fields",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
            "a 101 that completes no handshake of a WebSocket",
        ),
        ("HTTP/1.1 099 Low\r\n\r\n", "the status is less than 100"),
        (
            &head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            "Transfer-Encoding: it stands twice",
        ),
        (
            &head("Transfer-Encoding: gzip, chunked\r\n"),
            "Transfer-Encoding: another coding than chunked",
        ),
        (
            &head("Content-Length: 2, 3\r\n"),
            "Content-Length: two values",
        ),
        (&head("Content-Length: -2\r\n"), "Content-Length: no number"),
        (&head("X-Long: a\r\n b\r\n"), "X-Long: a folded line"),
        (&head("X A: b\r\n"), "X A: a blank in the name"),
        (
            &head("X-A: secret\u{1}\r\n"),
            "X-A: a control character in the value",
        ),
    ] {
        stack.service.responds(response.as_bytes().to_vec());
        let response = stack.sidecar.bearing(&stack.token()).get("/list");
        assert_eq!(verdict(&response), "502 upstream_malformed", "{cause}");
        stack.sidecar.until_logged(&format!("cause=\"{cause}\""));
    }
    assert_eq!(
        stack.sidecar.process().stderr().matches("secret").count(),
        0
    );
}

#[test]
fn the_log_says_where_the_service_was_sought() {
    let stack = stack();
    let silent =
        tests::socket_server::SocketServer::start(|_| tests::socket_server::Reply::Silence);
    let (away, silent) = (free_address().to_string(), silent.address().to_string());
    for (upstream, reason, tried) in [
        (format!("http://{away}"), "502 upstream_unavailable", &*away),
        (format!("http://{silent}"), "504 upstream_timeout", &silent),
        (
            "unix:/nowhere/app.sock".to_owned(),
            "502 upstream_unavailable",
            "/nowhere/app.sock",
        ),
        (
            "http://postern.invalid:3000".to_owned(),
            "502 upstream_unavailable",
            "http://postern.invalid:3000",
        ),
    ] {
        let flags = ["--upstream-read-timeout=1", "--log-format=json"];
        let sidecar = stack.in_front_of(&upstream, &flags);
        let anonymous = sidecar.anonymous().get("/list?appSecret=hush");
        assert_eq!(anonymous.status(), 401);
        let response = sidecar.bearing(&stack.token()).get("/list?appSecret=hush");
        assert_eq!(verdict(&response), reason);
        assert_eq!(
            sidecar.readiness(),
            200,
            "the service's state is not the sidecar's"
        );
        let line = |reason: &str| {
            wait::until("the line", || {
                let log = sidecar.process().stderr();
                let lines = log.lines().filter(|line| line.contains(r#""request""#));
                let line = lines.into_iter().find(|line| line.contains(reason))?;
                serde_json::from_str::<Value>(line).ok()
            })
        };
        let (_, reason) = reason.split_once(' ').unwrap();
        let failed = line(reason);
        assert_eq!(failed["upstream"], tried, "{failed}");
        let rejected = line("token_missing");
        assert!(rejected["upstream"].is_null(), "{rejected}");
        assert!(
            !sidecar.process().output().contains("hush"),
            "the query is in the log"
        );
    }
}

#[test]
fn a_post_that_reached_the_service_is_never_sent_twice() {
    let stack = stack();
    let service = EchoService::start();
    let sidecar = stack.in_front_of(&service.url(), &[]);
    service.responds(b"garbage\r\n\r\n".to_vec());
    let client = sidecar.bearing(&stack.token());
    assert_eq!(
        client
            .send(&client.request("POST", "/pay").body("1"))
            .status(),
        502
    );
    assert_eq!(service.requests().len(), 1);
}
