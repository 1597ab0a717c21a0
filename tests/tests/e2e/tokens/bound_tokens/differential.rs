//! The same proofs at the sidecar and at two others that verify them: the verdicts are equal, or
//! `proof_differences.toml` has the sentence that decides.

use std::net::SocketAddr;

use serde::Deserialize;
use serde_json::json;
use tests::actors::client::Request;
use tests::actors::process::Process;
use tests::actors::proving_client::ProvingClient;
use tests::actors::stack::ForgedStack;
use tests::keys::Algorithm;
use tests::proof_rows::{ProofRow, ProofTable};
use tests::services::node::Node;
use tests::tables::{Verdicts, load};
use tests::wire::clock;
use tests::wire::raw_client::exchange;

use super::{PATH, RESOURCE, URL};

/// `proof_differences.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    difference: Vec<Difference>,
}

/// A proof on which another one decides differently than the sidecar.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Difference {
    proof: String,
    /// `userinfo` of `oidc-provider`, or `bearer` of Auth0.
    peers: Vec<String>,
    #[serde(rename = "why")]
    _why: String,
}

/// The sidecar and the two others, each with a token for the client.
struct Verifiers {
    ours: ForgedStack,
    _node: Process,
    others: [SocketAddr; 2],
}

impl Verifiers {
    fn start() -> Option<Self> {
        let node = Node::with("express-oauth2-jwt-bearer")?;
        let flags = [
            &RESOURCE[..],
            &["--issuer", "https://idp", "--audience", "orders"],
        ];
        let ours = ForgedStack::with_flags(flags.concat());
        let jwk = ours.forge.trusted().public_jwk().to_string();
        let mut node = node.start("proof_verifiers.mjs", &[&jwk]);
        let announced = node.announced("listening on ");
        let (userinfo, bearer) = announced.split_once(' ').unwrap();
        Some(Self {
            ours,
            _node: node,
            others: [userinfo, bearer].map(|address| address.parse().unwrap()),
        })
    }

    /// Returns each verifier with its address and a token that is bound to the client's key.
    fn tokens(&self, client: &ProvingClient) -> [(&'static str, SocketAddr, String); 3] {
        let [userinfo, bearer] = self.others;
        let mint = Request::new("GET", format!("/token?jkt={}", client.jkt())).bytes("a");
        let minted = exchange(userinfo, "GET", &mint).json();
        let claims = json!({"cnf": client.cnf(), "iss": "https://idp", "aud": "orders"});
        let jwt = self.ours.forge.token(clock::now(), &claims);
        [
            ("ours", self.ours.sidecar.address(), jwt.clone()),
            (
                "userinfo",
                userinfo,
                minted["token"].as_str().unwrap().to_owned(),
            ),
            ("bearer", bearer, jwt),
        ]
    }
}

/// Returns true if the proof of a row is accepted with this token.
fn accepts(address: SocketAddr, client: &ProvingClient, token: &str, row: &ProofRow) -> bool {
    let proof = [&b"DPoP: "[..], &client.field(row, "GET", URL, token)].concat();
    let request = Request::new("GET", PATH)
        .line("X-Forwarded-Proto: https")
        .line(format!("Authorization: DPoP {token}"))
        .line(proof);
    let status = exchange(address, "GET", &request.bytes("api.example")).status();
    assert!(
        [200, 400, 401].contains(&status),
        "{status} for {}",
        row.name
    );
    status == 200
}

#[test]
fn proofs_get_the_verdicts_of_others_or_an_rfc_decides() {
    let Some(verifiers) = Verifiers::start() else {
        return;
    };
    let listed: Differences = load("proof_differences.toml");
    let (mut verdicts, mut found, mut sent) = (Verdicts::default(), Vec::new(), 0);
    for algorithm in [
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::EdDSA,
        Algorithm::PS256,
    ] {
        let client = ProvingClient::new(algorithm);
        let tokens = verifiers.tokens(&client);
        for row in ProofTable::load().unwrap().proof {
            sent += 1;
            let [ours, others @ ..] = tokens
                .each_ref()
                .map(|(name, address, token)| (*name, accepts(*address, &client, token, &row)));
            let differing = others.iter().filter(|other| other.1 != ours.1);
            let differing: Vec<_> = differing.map(|other| other.0.to_owned()).collect();
            let expected = listed.difference.iter().find(|it| it.proof == row.name);
            let expected = expected.map_or(&[][..], |it| &it.peers);
            let name = format!("{}: {}", algorithm.name(), row.name);
            verdicts.row(
                &name,
                (differing != expected).then(|| format!("ours {}, {differing:?} differ", ours.1)),
            );
            found.push(row.name);
        }
    }
    verdicts.conclude();
    assert!(sent >= 200, "{sent}");
    for difference in &listed.difference {
        assert!(found.contains(&difference.proof), "{}", difference.proof);
    }
}
