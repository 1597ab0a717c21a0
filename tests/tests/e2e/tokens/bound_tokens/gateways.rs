//! Certificates of clients behind gateways that end TLS, and `curl` as the client.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tests::actors::process::CommandLine;
use tests::actors::stack::ForgedStack;
use tests::services::tls_gateway::{GatewayPlan, TlsGateway};
use tests::wire::certificates::{Authority, Certificate};
use tests::wire::clock;

/// Sends GET with `curl`, and returns the status and the reason of a rejection.
fn curl(
    authority: &Authority,
    url: &str,
    certificate: Option<&Certificate>,
    fields: &[String],
) -> String {
    let ca = authority.file().display().to_string();
    let mut command = CommandLine::new("curl").arguments([
        "-sS",
        "--max-time",
        "30",
        "--cacert",
        &ca,
        "-w",
        "\n%{http_code}",
        url,
    ]);
    if let Some(certificate) = certificate {
        let (cert, key) = certificate.paths();
        command = command.arguments(["--cert", cert, "--key", key]);
    }
    for field in fields {
        command = command.arguments(["-H", field]);
    }
    let end = command.run();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let (body, status) = end.stdout.rsplit_once('\n').unwrap();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    match body["data"]["reason"].as_str() {
        Some(reason) => format!("{status} {reason}"),
        None => status.to_owned(),
    }
}

fn through(
    start: impl FnOnce(GatewayPlan<'_>) -> Option<TlsGateway>,
    header: &str,
    forged: &[String],
    without: &str,
) {
    let (stack, authority, unknown) = (ForgedStack::start(), Authority::new(), Authority::new());
    let flags = ["--client-cert-header", header, "--trusted-proxy=127.0.0.1"];
    let sidecar = stack.in_front_of(&stack.service.url(), &flags);
    let server = authority.issue_server(&["127.0.0.1"]);
    let plan = GatewayPlan {
        upstream: sidecar.address(),
        server: &server,
        clients: &authority,
    };
    let Some(gateway) = start(plan) else { return };
    let [ada, bob] = ["ada", "bob"].map(|name| authority.issue(name));
    // Of an authority that the gateway does not know: it has to let it in.
    let own = unknown.issue_client();
    let url = format!("https://{}/orders/1", gateway.address());
    let get = |bound: &Certificate, presented: Option<&Certificate>, more: &[String]| {
        let token = stack
            .forge
            .token(clock::now(), &json!({"cnf": bound.cnf()}));
        let fields = [&[format!("Authorization: Bearer {token}")], more].concat();
        curl(&authority, &url, presented, &fields)
    };
    for bound in [&ada, &own] {
        assert_eq!(get(bound, Some(bound), &[]), "200", "{header}");
        assert_eq!(
            get(bound, Some(&bob), &[]),
            "401 certificate_other",
            "{header}"
        );
        assert_eq!(get(bound, None, &[]), without, "{header}");
    }
    // Names of a certificate are the client's to choose, and Envoy writes them without quotes.
    let der = bound_to(&ada);
    for separator in [',', ';'] {
        let uri = format!("spiffe://a{separator}Hash={der}");
        let thief = unknown.issue_client_with_uri(&uri);
        let found = get(&ada, Some(&thief), &[]);
        assert!(
            found.starts_with("401 certificate_"),
            "{separator}: {found}"
        );
    }
    // A client's own field is the gateway's to remove.
    for field in forged {
        let found = get(&ada, None, std::slice::from_ref(field));
        assert_eq!(found, without, "{field}");
    }
    let seen = stack.service.last_request();
    assert_eq!(seen.header(header), [""; 0]);
}

/// Returns the digest of a certificate in the digits of Envoy.
fn bound_to(certificate: &Certificate) -> String {
    let digest = certificate.cnf()["x5t#S256"].as_str().unwrap().to_owned();
    let digest = URL_SAFE_NO_PAD.decode(digest).unwrap();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The verdict about a client without a certificate.
const MISSING: &str = "401 certificate_missing";

#[test]
fn nginx_passes_the_certificate_of_its_client_on() {
    let forged = ["X-Client-Cert: :ZGVy:".to_owned()];
    through(TlsGateway::nginx, "X-Client-Cert", &forged, MISSING);
}

#[test]
fn haproxy_passes_the_certificate_of_its_client_on() {
    let forged = ["X-Client-Cert: :ZGVy:".to_owned()];
    through(TlsGateway::haproxy, "X-Client-Cert", &forged, MISSING);
}

#[test]
fn caddy_passes_the_certificate_of_its_client_on() {
    let forged = ["X-Client-Cert: :ZGVy:".to_owned()];
    let unreadable = "401 certificate_unreadable";
    through(TlsGateway::caddy, "X-Client-Cert", &forged, unreadable);
}

#[test]
fn envoy_passes_the_certificate_of_its_client_on() {
    let forged = [format!("X-Forwarded-Client-Cert: Hash={}", "ab".repeat(32))];
    through(
        TlsGateway::envoy,
        "X-Forwarded-Client-Cert",
        &forged,
        MISSING,
    );
}
