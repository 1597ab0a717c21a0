//! Issuers of others behind one sidecar: two of npm's `oidc-provider` and one of PyPI's `authlib`,
//! found by discovery alone. All of them name their key `key-1`.

use serde_json::{Value, json};
use tests::actors::sidecar::{NEVER, SidecarPlan};
use tests::actors::token_forge::payload_of;
use tests::services::echo_service::EchoService;
use tests::services::peer_issuer::PeerIssuer;
use tests::tables::Verdicts;

use super::several_issuers::published::Issuers;
use super::several_issuers::tokens_get_their_verdicts;

const AUDIENCES: [&str; 3] = ["orders", "stock", "orders"];

/// Starts each issuer; `None` where one is not installed.
fn issuers() -> Option<[PeerIssuer; 3]> {
    Some([
        PeerIssuer::oidc_provider(AUDIENCES[0])?,
        PeerIssuer::oidc_provider(AUDIENCES[1])?,
        PeerIssuer::authlib(AUDIENCES[2])?,
    ])
}

/// Returns a sidecar with a table for each issuer and audience.
fn plan(service: &EchoService, issuers: &[PeerIssuer; 3], audiences: [&str; 3]) -> SidecarPlan {
    let tables = issuers.iter().zip(audiences).enumerate();
    let table = |(number, (one, audience)): (usize, (&PeerIssuer, &str))| {
        format!(
            "[[issuer]]\nname = 'issuer-{number}'\nissuer = '{}'\ndiscovery = true\n\
             audience = ['{audience}']\nuser-prefix = '{number}:'\n",
            one.issuer()
        )
    };
    let rule = "[[rule]]\npaths = ['/**']\nscope = ['orders:read']\n";
    let config = tables.map(table).collect::<String>() + rule;
    SidecarPlan::of_issuer(service, ["--claim-header", "X-Issuer=iss"]).config(&config)
}

#[test]
fn each_real_issuer_is_trusted_for_its_own_tokens_alone() {
    let Some(issuers) = issuers() else { return };
    let service = EchoService::start();
    let plan = |audiences| plan(&service, &issuers, audiences).flags(NEVER);
    let sidecar = plan(AUDIENCES).with_all_keys();
    let tokens = issuers.each_ref().map(PeerIssuer::token);
    for (number, (issuer, token)) in issuers.iter().zip(&tokens).enumerate() {
        assert_eq!(payload_of(token)["iss"], issuer.issuer());
        let name = format!("{number}:jobs");
        for _ in 0..2 {
            assert_eq!(sidecar.verdict_of(token), "200");
            let seen = service.take_requests().pop().unwrap();
            assert_eq!(seen.header("x-issuer"), [issuer.issuer()]);
            let user: Value = serde_json::from_str(&seen.header("x-current-user")[0]).unwrap();
            assert_eq!(user, json!({"id": name, "account": name}));
        }
    }
    // The same kid and the same algorithm, but another key.
    for (index, token) in tokens.iter().enumerate() {
        let (signed, _) = token.rsplit_once('.').unwrap();
        for other in tokens.iter().enumerate().filter(|other| other.0 != index) {
            let (_, signature) = other.1.rsplit_once('.').unwrap();
            let forged = sidecar.bearing(&format!("{signed}.{signature}"));
            assert_eq!(forged.verdict("/list"), "401 token_signature");
        }
    }
    let elsewhere = plan(["stock", "orders", "stock"]).with_all_keys();
    for token in &tokens {
        let response = elsewhere.bearing(token).get("/list");
        assert_eq!(response.verdict(), "401 token_audience");
    }
    assert_eq!(service.requests().len(), 0);
}

#[test]
fn keys_and_tokens_count_as_real_issuers_write_them() {
    let issuers = Issuers::publish_of("real_issuers.toml", &[]);
    let sidecar = issuers.start();
    let mut verdicts = Verdicts::default();
    for one in &issuers.published {
        tokens_get_their_verdicts(one, &sidecar, &issuers.service, &mut verdicts);
    }
    verdicts.conclude();
    assert_eq!(sidecar.until_logged("'legacy' (RS256): "), 1);
}
