//! Keys in PEM, DER and as secrets, and texts that hold none.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;

#[test]
fn strings_that_are_no_public_key_are_rejected() {
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
    let other = |found| KeyError::OtherType {
        found,
        expected: SigningType::Rsa,
    };
    let cases = [
        ("", not_public("nothing")),
        ("<html>", not_public("HTML")),
        (P256, other(Algorithm::ES256)),
        (ED25519, other(Algorithm::EdDSA)),
        (private, KeyError::PrivateKey),
        // PKCS#8 without armour: its length in the first byte, in one more, in two more.
        ("MC4CAQA=", KeyError::PrivateKey),
        ("MIGHAgEA", KeyError::PrivateKey),
        ("MIIEvQIBAA==", KeyError::PrivateKey),
        ("AAAA", KeyError::NotAPublicKey),
    ];
    for (text, expected) in cases {
        let error = VerificationKey::parse(SigningType::Rsa, text).unwrap_err();
        assert_eq!(error, expected, "{text}");
    }
}

#[test]
fn a_shared_secret_has_at_least_32_bytes_and_is_never_a_jwk() {
    let parse = |text: &str| VerificationKey::parse(SigningType::Hmac, text);
    let found = parse(&"a".repeat(31)).unwrap_err();
    assert_eq!(found, KeyError::SecretTooShort { bytes: 31 });
    for public in [P256.to_owned(), pem(P256)] {
        let why = "the key is of type ecdsa, but --signing-type is hmac";
        assert_eq!(parse(&public).unwrap_err().to_string(), why);
    }
    let certificate = pem(P256).replace("PUBLIC KEY", "CERTIFICATE");
    assert!(parse(&certificate).is_err());
    let key = parse(&"a".repeat(32)).unwrap();
    assert!(key.to_jwk().is_none());
    let printed = format!(
        "VerificationKey {{ id: KeyId(\"{}\"), algorithm: HS256, .. }}",
        key.id()
    );
    assert_eq!(format!("{key:?}"), printed);
}

/// P-256, P-384 and Ed25519 (SPKI).
const P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfMVwmU++jJT+E3CZyufERNg0tK2IdtY+UJfTh6cyCKRyZZLdYzkCF07DFHSIuAm2YyWTUWL999y7uJ1vg19ZvA==";
const P384: &str = "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEOh0l29FmhIMQDFH7UHBuOlpyRNMWdICUzFWQg4z9YArTd0VumWNfaH5QzpDyFiLg+GRUuho5iIWFvdF7w49PIFGTj3fMXjkYJmoU7Xdh/EpTWfqg7HpHo4iSSkeoMAXK";
const ED25519: &str = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";

fn not_public(found: &str) -> KeyError {
    let found = found.to_owned();
    KeyError::NotPublicPem { found }
}

fn pem(base64: &str) -> String {
    format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n")
}

#[test]
fn a_public_key_of_any_type_has_its_fitting_algorithm() {
    use Algorithm::{ES256, ES384, EdDSA, RS256};
    let allowed = [RS256, ES384, ES256, EdDSA];
    for (key, algorithm) in [(P256, ES256), (P384, ES384), (ED25519, EdDSA)] {
        for text in [key.to_owned(), pem(key)] {
            let keys = KeySet::from_file(text.as_bytes(), &allowed).unwrap();
            assert!(keys.keys().iter().all(|key| !key.is_named()));
            assert_eq!(keys.keys()[0].algorithm(), algorithm);
            let rejected = KeySet::from_file(text.as_bytes(), &[RS256]).unwrap_err();
            assert_eq!(rejected, KeyError::NotAllowed);
        }
    }
}

/// `openssl pkey -pubin -text`, `openssl pkcs12`, and a header of INI in Latin-1.
#[test]
fn text_around_the_blocks_counts_for_nothing() {
    let (one, other) = (pem(P256), pem(ED25519));
    let latin = [b"[ schl\xfcssel ]\n", one.as_bytes()].concat();
    for (bytes, keys) in [
        (format!("\n{one}\n{other}").into_bytes(), 2),
        (format!("Public-Key: (256 bit)\n{one}").into_bytes(), 1),
        (
            format!("Bag Attributes\r\n    friendlyName: x\r\n{one}# between\n{other}the end\n")
                .into_bytes(),
            2,
        ),
        (format!("{{ in use }}\n{one}").into_bytes(), 1),
        (latin, 1),
    ] {
        let set = KeySet::from_file(&bytes, &[Algorithm::ES256, Algorithm::EdDSA]).unwrap();
        assert_eq!(set.keys().len(), keys);
    }
}

/// PKCS #1 of a key of 2048 bits, as `ssh-keygen -e -m PEM` writes it.
#[test]
fn an_rsa_key_in_pkcs_1_is_a_public_key() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let modulus = [&[0x02, 0x82, 0x01, 0x01, 0x00][..], &[0xc5; 256]].concat();
    let exponent = [0x02, 0x03, 0x01, 0x00, 0x01];
    let der = [&[0x30, 0x82, 0x01, 0x0a][..], &modulus, &exponent].concat();
    let text = pem(&STANDARD.encode(der)).replace("PUBLIC", "RSA PUBLIC");
    let keys = KeySet::from_file(text.as_bytes(), &[Algorithm::RS256]).unwrap();
    assert_eq!(keys.keys()[0].algorithm(), Algorithm::RS256);
}

#[test]
fn what_is_no_public_key_is_named_and_never_quoted() {
    let (key, labelled) = (pem(P256), |label: &str| {
        pem(P256).replace("PUBLIC KEY", label)
    });
    let cut_off = "PEM that is cut off, or has other characters than base64";
    let of_base64 = "the base64 of PEM: base64 -d decodes it";
    let open_ssh = "a key of OpenSSH: ssh-keygen -e -m PKCS8 -f FILE writes PEM";
    let utf_16 = |text: &str| {
        text.encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<_>>()
    };
    for (bytes, found) in [
        (b"".to_vec(), "nothing"),
        (b"<html>".to_vec(), "HTML"),
        (labelled("CERTIFICATE").into_bytes(), "PEM of CERTIFICATE"),
        (
            labelled("CERTIFICATE REQUEST").into_bytes(),
            "PEM of CERTIFICATE REQUEST",
        ),
        (
            labelled("EC PARAMETERS").into_bytes(),
            "PEM of EC PARAMETERS",
        ),
        (
            format!("{key}{}", labelled("X509 CRL")).into_bytes(),
            "PEM of PUBLIC KEY, X509 CRL",
        ),
        (format!("{key}{}", &key[..60]).into_bytes(), cut_off),
        (key.replace('\n', "\\n").into_bytes(), cut_off),
        (b"ssh-rsa AAAAB3NzaC1yc2E= me".to_vec(), open_ssh),
        (b"ecdsa-sha2-nistp256 AAAAE2VjZHNh me".to_vec(), open_ssh),
        (
            vec![0x30, 0x82, 0x01, 0x22, 0x30, 0x0d],
            "DER or PKCS #12, which openssl converts to PEM",
        ),
        (b"LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0K".to_vec(), of_base64),
        (
            vec![0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2],
            "a Java keystore: keytool converts it to PKCS #12, and openssl that to PEM",
        ),
        (utf_16(&key), "UTF-16: it has to be UTF-8"),
        (
            utf_16(&format!("\u{feff}{key}")),
            "UTF-16: it has to be UTF-8",
        ),
    ] {
        let rejected = KeySet::from_file(&bytes, &[Algorithm::ES256]).unwrap_err();
        assert_eq!(rejected, not_public(found));
    }
    let private = [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
    ]
    .map(labelled);
    for private in &private {
        for text in [
            private.clone(),
            format!("{key}{private}"),
            private[..40].to_owned(),
        ] {
            let rejected = KeySet::from_file(text.as_bytes(), &[Algorithm::ES256]).unwrap_err();
            assert_eq!(rejected, KeyError::PrivateKey, "{text}");
        }
    }
}
