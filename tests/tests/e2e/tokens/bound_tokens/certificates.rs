//! Certificates of clients (RFC 8705): on the sidecar's own TLS.

use std::io::Read;

use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::wire::certificates::{Authority, Certificate};
use tests::wire::clock;
use tests::wire::h2_frames::{frame_of, get_fields, header_block};
use tests::wire::tls::{TlsClient, Trust};

use super::PATH;

/// A sidecar with TLS, and two clients whose tokens are bound to their certificates.
struct Mutual {
    stack: ForgedStack,
    authority: Authority,
    sidecar: Sidecar,
    clients: [Certificate; 2],
}

impl Mutual {
    fn start(flags: &[&str]) -> Self {
        let (stack, authority) = (ForgedStack::start(), Authority::new());
        let server = authority.issue("server").flags();
        let flags: Vec<_> = server
            .iter()
            .map(String::as_str)
            .chain(flags.iter().copied())
            .collect();
        Self {
            sidecar: stack.in_front_of(&stack.service.url(), &flags),
            clients: ["ada", "bob"].map(|name| authority.issue(name)),
            authority,
            stack,
        }
    }

    fn token(&self, cnf: &Value) -> String {
        self.stack.forge.token(clock::now(), &json!({ "cnf": cnf }))
    }

    /// Connects with a certificate, or without one.
    fn connect(&self, certificate: Option<&Certificate>, alpn: &[&str]) -> TlsClient {
        self.trust(certificate, alpn)
            .connect(self.sidecar.address())
            .unwrap()
    }

    fn trust(&self, certificate: Option<&Certificate>, alpn: &[&str]) -> Trust {
        let trust = self.authority.client_with(rustls::DEFAULT_VERSIONS, alpn);
        certificate.map_or(trust.clone(), |it| trust.with_identity(it))
    }
}

fn over_http_1(client: &mut TlsClient, token: &str) -> String {
    let request = Request::new("GET", PATH).line(format!("Authorization: Bearer {token}"));
    client.send(&request.bytes("api.example"));
    client.response("GET").verdict()
}

/// Sends a request as the given stream, and returns the reason in the body, or all of it.
fn over_http_2(client: &mut TlsClient, stream: u32, token: &str) -> String {
    if stream == 1 {
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(&frame_of(4, 0, 0, &[]));
    }
    let authorization = format!("Bearer {token}");
    let fields = [get_fields(PATH), vec![("authorization", &*authorization)]].concat();
    client.send(&frame_of(1, 5, stream, &header_block(&fields)));
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        client.reader().read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        client.reader().read_exact(&mut payload).unwrap();
        if head[8] != u8::try_from(stream).unwrap() {
            continue;
        }
        if head[3] == 0 {
            body.extend(payload);
        }
        if head[3] <= 1 && head[4] & 1 == 1 {
            break;
        }
    }
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(_) => return String::from_utf8(body).unwrap(),
    };
    body["data"]["reason"].as_str().unwrap().to_owned()
}

#[test]
fn rfc_8705_3_a_token_counts_with_its_certificate_alone() {
    let ours = Mutual::start(&["--client-cert", "optional"]);
    let [ada, bob] = &ours.clients;
    let token = ours.token(&ada.cnf());
    let plain = ours.token(&Value::Null);
    for (certificate, verdict, reason) in [
        (Some(ada), "200", "echo"),
        (Some(bob), "401 certificate_other", "certificate_other"),
        (None, "401 certificate_missing", "certificate_missing"),
    ] {
        let mut http_1 = ours.connect(certificate, &["http/1.1"]);
        let mut http_2 = ours.connect(certificate, &["h2"]);
        assert_eq!(http_2.protocol().as_deref(), Some("h2"));
        // The second time it is in the cache; a plain token needs nothing.
        for again in 0..2 {
            assert_eq!(over_http_1(&mut http_1, &token), verdict);
            assert_eq!(over_http_1(&mut http_1, &plain), "200");
            assert_eq!(over_http_2(&mut http_2, 4 * again + 1, &token), reason);
            assert_eq!(over_http_2(&mut http_2, 4 * again + 3, &plain), "echo");
        }
    }
}

#[test]
fn rfc_8705_2_2_a_self_signed_certificate_needs_no_authority() {
    let unknown = Authority::new();
    let own = unknown.as_server();
    let expired = unknown.issue_expired_client();
    // With an extension that counts for those who verify more than possession.
    let odd = unknown.issue_client_with_extension();
    for mode in ["optional", "required"] {
        let ours = Mutual::start(&["--client-cert", mode]);
        for certificate in [&own, &expired, &odd] {
            let token = ours.token(&certificate.cnf());
            let mut client = ours.connect(Some(certificate), &[]);
            assert_eq!(over_http_1(&mut client, &token), "200", "{mode}");
        }
        assert_eq!(greets_without(&ours), mode == "optional");
    }
}

/// Returns true if a client without a certificate gets a response.
fn greets_without(ours: &Mutual) -> bool {
    let request = Request::new("GET", PATH).bytes("api.example");
    let Ok(mut client) = ours.trust(None, &[]).connect(ours.sidecar.address()) else {
        return false;
    };
    client.send(&request);
    client.try_response("GET").is_ok()
}

#[test]
fn with_authorities_only_their_certificates_count() {
    let [others, unknown] = [(); 2].map(|()| Authority::new());
    let ca = others.file().display().to_string();
    let (known, unknown) = (others.issue_client(), unknown.issue_client());
    for (mode, lets_in) in [
        (&["--client-cert", "optional"][..], true),
        (&["--client-cert", "required"], false),
        (&[], false),
    ] {
        let ours = Mutual::start(&[&["--client-ca", &ca], mode].concat());
        let token = ours.token(&known.cnf());
        assert_eq!(
            over_http_1(&mut ours.connect(Some(&known), &[]), &token),
            "200"
        );
        assert_eq!(greets_without(&ours), lets_in, "{mode:?}");
        let rejected = ours
            .trust(Some(&unknown), &[])
            .connect(ours.sidecar.address());
        let rejected = rejected.and_then(|mut client| {
            client.send(&Request::new("GET", PATH).bytes("a"));
            client.try_response("GET")
        });
        assert!(rejected.is_err(), "{mode:?}");
    }
}

#[test]
fn a_resumed_session_keeps_its_certificate() {
    let ours = Mutual::start(&["--client-cert", "optional"]);
    let [ada, bob] = &ours.clients;
    let tokens = [ada, bob].map(|it| ours.token(&it.cnf()));
    let trust = ours.trust(Some(ada), &["http/1.1"]);
    for is_resumed in [false, true, true] {
        let mut client = trust.connect(ours.sidecar.address()).unwrap();
        assert_eq!(client.is_resumed(), is_resumed);
        assert_eq!(over_http_1(&mut client, &tokens[0]), "200");
        assert_eq!(
            over_http_1(&mut client, &tokens[1]),
            "401 certificate_other"
        );
    }
}

#[test]
fn no_spelling_of_the_certificate_s_field_reaches_the_service() {
    let flags = ["--client-cert-header=X-Client", "--trusted-proxy=127.0.0.1"];
    let stack = ForgedStack::with_flags(flags);
    let client = stack.sidecar.bearing(&stack.token());
    for name in ["X-Client", "x-client", "X_Client", "x.client"] {
        let field = format!("{name}: Hash={}", "ab".repeat(32));
        let found = client.send(&client.request("GET", "/list").line(field));
        assert_eq!(found.verdict(), "200");
        let lines = stack.service.last_request().header_lines();
        assert!(!lines.iter().any(|line| line.contains("Hash=")), "{name}");
    }
}
