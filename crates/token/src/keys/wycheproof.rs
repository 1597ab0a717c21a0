//! The vectors of Project Wycheproof for each algorithm. Keys of proofs are parsed and used as those of
//! issuers are.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use data_encoding::HEXLOWER;
use jsonwebtoken::Algorithm;
use serde_json::Value;
use wycheproof::{ecdsa, eddsa, rsa_pkcs1_verify, rsa_pss_verify};

use super::{KeySet, VerificationKey};

const SETS: [(Algorithm, &str); 13] = [
    (Algorithm::ES256, "ecdsa_secp256r1_sha256_p1363"),
    (Algorithm::ES384, "ecdsa_secp384r1_sha384_p1363"),
    (Algorithm::EdDSA, "ed25519"),
    (Algorithm::RS256, "rsa_signature_2048_sha256"),
    (Algorithm::RS256, "rsa_signature_3072_sha256"),
    (Algorithm::RS256, "rsa_signature_4096_sha256"),
    (Algorithm::RS256, "rsa_signature_8192_sha256"),
    (Algorithm::RS384, "rsa_signature_2048_sha384"),
    (Algorithm::RS512, "rsa_signature_2048_sha512"),
    (Algorithm::PS256, "rsa_pss_2048_sha256_mgf1_32"),
    (Algorithm::PS256, "rsa_pss_4096_sha256_mgf1_32"),
    (Algorithm::PS384, "rsa_pss_2048_sha384_mgf1_48"),
    (Algorithm::PS512, "rsa_pss_4096_sha512_mgf1_64"),
];

fn vectors(name: &str) -> Value {
    let text = match name.split('_').take(2).collect::<Vec<_>>()[..] {
        ["ecdsa", _] => name.parse().map(|it: ecdsa::TestName| it.json_data()),
        ["rsa", "pss"] => name
            .parse()
            .map(|it: rsa_pss_verify::TestName| it.json_data()),
        ["rsa", _] => name
            .parse()
            .map(|it: rsa_pkcs1_verify::TestName| it.json_data()),
        _ => name.parse().map(|it: eddsa::TestName| it.json_data()),
    };
    serde_json::from_str(text.unwrap()).unwrap()
}

/// Returns the key of a group by its PEM, and by its JWK where it has one.
fn keys(algorithm: Algorithm, group: &Value) -> Vec<VerificationKey> {
    let pem = group["publicKeyPem"].as_str().unwrap();
    let set = KeySet::from_file(pem.as_bytes(), &[algorithm]).unwrap();
    let mut keys = set.keys().to_vec();
    if let Some(jwk) = group.get("publicKeyJwk") {
        let jwk = serde_json::from_value(jwk.clone()).unwrap();
        keys.push(VerificationKey::from_jwk(&jwk, &[algorithm]).unwrap());
    }
    keys
}

#[test]
fn signatures_get_the_verdicts_of_the_vectors() {
    let mut tried = 0;
    for (algorithm, name) in SETS {
        for group in vectors(name)["testGroups"].as_array().unwrap() {
            for key in keys(algorithm, group) {
                for test in group["tests"].as_array().unwrap() {
                    let [message, signature] = ["msg", "sig"]
                        .map(|part| HEXLOWER.decode(test[part].as_str().unwrap().as_bytes()));
                    let verifies = key.verifies(&message.unwrap(), &signature.unwrap());
                    assert_eq!(verifies, test["result"] == "valid", "{name} {test}");
                    tried += 1;
                }
            }
        }
    }
    assert_eq!(tried, 3989);
}
