//! `oidc-provider`: from its end-session page to three sidecars and their streams.

use tests::actors::auth_server::{AuthServerPlan, TOKEN_REVOKED};
use tests::actors::process::Process;
use tests::actors::sidecar::{EVERY_SECOND, SidecarPlan};
use tests::actors::token_forge::payload_of;
use tests::services::node::Node;
use tests::services::peer_issuer::PeerIssuer;
use tests::services::streaming_service::StreamingService;
use tests::wire::free_address::free_address;
use tests::wire::h2_client::H2Client;
use tests::wire::raw_client::{HANDSHAKE, RawClient, head_with_token};

/// A person at the pages of the issuer.
struct Person {
    process: Process,
    token: String,
}

impl Person {
    fn logged_in(node: &Node, issuer: &PeerIssuer) -> Self {
        let mut process = node.start("logout_person.mjs", &[&issuer.issuer()]);
        let token = process.announced("token ");
        Self { process, token }
    }
}

#[test]
fn a_logout_at_the_end_session_page_ends_tokens_and_streams() {
    let address = free_address();
    let receiver = format!("http://{address}/auth{}", super::RECEIVER);
    let (Some(node), Some(issuer)) = (
        Node::with("oidc-provider"),
        PeerIssuer::with_logout("urn:orders", &receiver),
    ) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("auth-server.toml");
    let iss = issuer.issuer();
    std::fs::write(
        &file,
        format!("[[logout]]\nissuer = '{iss}'\nclient = 'shop'\n"),
    )
    .unwrap();
    let plan = AuthServerPlan::polling().listen(address);
    let server = plan.flags(["--config", file.to_str().unwrap()]).ready();
    let service = StreamingService::start();
    let sidecars = [(); 3].map(|()| {
        let from = ["--revocations-from", &server.url()];
        let plan = SidecarPlan::of_upstream(&service.url(), from).flags(EVERY_SECOND);
        let flags = ["--issuer-url", &iss, "--audience", "urn:orders"];
        plan.flags(flags).ready()
    });
    let [mut leaver, stayer] = [(); 2].map(|()| Person::logged_in(&node, &issuer));
    let [left, stays] = [&leaver, &stayer].map(|person| payload_of(&person.token));
    assert_eq!(left["sub"], stays["sub"], "two sessions of one user");
    assert_ne!(left["sid"], stays["sid"]);

    let open = |number: usize, path: &str, token: &str, lines: &str| {
        let mut client = RawClient::connect(sidecars[number].address());
        client.send(&head_with_token("GET", path, token, lines));
        client
    };
    let mut events = open(0, "/orders/events", &leaver.token, "");
    let mut kept = open(0, "/orders/events", &stayer.token, "");
    for stream in [&mut events, &mut kept] {
        stream.text_until("data: first");
    }
    let over_http_2 = H2Client::connect(sidecars[1].address());
    let bearer = format!("Bearer {}", leaver.token);
    let get = |path| over_http_2.request("GET", path, &[("authorization", &bearer)]);
    let mut stream = over_http_2.open(get("/orders/events"));
    stream.finish().unwrap();
    assert_eq!(stream.head().unwrap().status(), 200);
    assert!(stream.read().unwrap().is_some());
    let mut websocket = open(2, "/orders/websocket", &leaver.token, HANDSHAKE);
    assert_eq!(websocket.response("GET").status(), 101);

    leaver.process.signal("HUP");
    leaver.process.announced("logged out");
    assert!(events.is_at_end());
    assert!(websocket.is_at_end());
    while let Ok(Some(_)) = stream.read() {}
    let after = over_http_2.send(get("/orders/list"), b"");
    assert_eq!(after.unwrap().verdict(), TOKEN_REVOKED);
    for sidecar in &sidecars {
        sidecar.until_revoked(&leaver.token);
        assert_eq!(sidecar.verdict_of(&stayer.token), "200");
    }
    sidecars[0].until_in_flight(1);
    drop(kept);
    sidecars[0].until_idle();
}
