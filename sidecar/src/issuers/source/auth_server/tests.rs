//! Fetches from auth servers of a few lines.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;

use postern_transport::http_client::MAX_BODY_BYTES;
use serde::Deserialize;
use serde_json::json;
use token_corpus::keys::SigningKey;
use token_corpus::template;

use super::*;

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Two P-256 keys (SPKI).
pub(crate) const ONE: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfMVwmU++jJT+E3CZyufERNg0tK2IdtY+UJfTh6cyCKRyZZLdYzkCF07DFHSIuAm2YyWTUWL999y7uJ1vg19ZvA==";
pub(crate) const OTHER: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEpqa4TBTfujEenIJcB13QS8k4MnXHn8RphvaDJWPihFTVo4Jk/x9frQLd2CjQGLal13+488b8Q1C2m1M4TVVHZw==";

fn key(text: &str) -> VerificationKey {
    VerificationKey::parse(SigningType::Ecdsa, text).unwrap()
}

pub(crate) fn set_of(keys: &[&str]) -> String {
    let keys: Vec<_> = keys.iter().map(|text| key(text).to_jwk()).collect();
    json!({ "keys": keys }).to_string()
}

/// Responds to each connection with `response` and passes on the request's head.
fn auth_server(response: String) -> (SocketAddr, mpsc::Receiver<String>) {
    responding(std::iter::repeat(response))
}

/// Responds with one response after the other.
fn responding(
    responses: impl IntoIterator<Item = String, IntoIter: Send + 'static>,
) -> (SocketAddr, mpsc::Receiver<String>) {
    let responses = responses.into_iter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, received) = mpsc::channel();
    thread::spawn(move || {
        for (stream, response) in listener.incoming().zip(responses) {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap();
            let _ = heads.send(String::from_utf8_lossy(&head[..length]).into_owned());
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (address, received)
}

fn source(address: SocketAddr) -> KeyEndpointSource {
    source_of(address, SigningType::Hmac)
}

fn source_of(address: SocketAddr, signing_type: SigningType) -> KeyEndpointSource {
    source_with(address, signing_type, PeerFiles::default())
}

fn source_with(
    address: SocketAddr,
    signing_type: SigningType,
    tls: PeerFiles,
) -> KeyEndpointSource {
    source_at(&format!("http://{address}/auth"), signing_type, tls)
}

fn source_at(auth_server: &str, signing_type: SigningType, tls: PeerFiles) -> KeyEndpointSource {
    // The first test of the process installs it, the others find it there.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let application = Application {
        id: "orders&co".to_owned(),
        secret: "h\u{fc}sh".into(),
        audience: Audience::OneOfOrNone(vec!["orders".to_owned()]),
    };
    let settings = EndpointSettings {
        auth_server: auth_server.parse().unwrap(),
        tls,
        application: Some(application),
        signing_type,
        wants_list: false,
    };
    KeyEndpointSource::new(settings)
}

fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn envelope(data: &str) -> String {
    format!(r#"{{"success":true,"status":200,"msg":"m","data":{data}}}"#)
}

#[tokio::test]
async fn contract_4_3_the_key_is_requested_with_both_parameters() {
    let (address, heads) = auth_server(response("200 OK", &envelope(&format!("\"{KEY}\""))));
    let mut source = source(address);
    let keys = source.fetch(None).await.unwrap().keys.unwrap();
    let expected = VerificationKey::parse(SigningType::Hmac, KEY).unwrap();
    assert_eq!(keys.keys()[0].id(), expected.id());
    assert!(!keys.keys()[0].is_named());
    let head = heads.recv().unwrap();
    let line = "GET /auth/client/user/secret/key?appId=orders%26co&appSecret=h%C3%BCsh HTTP/1.1";
    assert_eq!(head.lines().next(), Some(line));
    assert_eq!(source.last_endpoint(), address.to_string());
}

/// `bad_key_responses.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BadResponses {
    row: Vec<BadResponse>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BadResponse {
    name: String,
    /// Status line and fields; without one, the body is all that is written.
    head: Option<String>,
    body: String,
    /// A part of the reason.
    #[serde(default)]
    why: String,
}

#[tokio::test]
async fn whatever_fails_brings_no_key_and_gives_the_reason() {
    let table = include_str!("../../../../../tests/data/bad_key_responses.toml");
    let table: BadResponses = toml::from_str(table).unwrap();
    let private = SigningKey::generate(token_corpus::keys::SigningType::Ecdsa).private();
    let fill = |text: &str| {
        let filled = template::fill(text, |name| match name {
            "key" => Some(ONE.into()),
            "private" => Some(private.replace('\n', "\\n").into()),
            _ => (name == "long").then(|| vec![b'x'; MAX_BODY_BYTES + 1]),
        });
        String::from_utf8(filled).unwrap()
    };
    for row in table.row {
        let body = fill(&row.body);
        let response = row.head.map_or(body.clone(), |head| response(&head, &body));
        let (address, _heads) = auth_server(response);
        let mut source = source_of(address, SigningType::Ecdsa);
        let error = source.fetch(None).await.unwrap_err().to_string();
        assert!(error.contains(&row.why), "{}: {error}", row.name);
        assert!(!error.contains("appSecret"), "{error}");
    }
}

/// Returns a response with more fields.
fn response_with(status: &str, fields: &str, body: &str) -> String {
    response(&format!("{status}\r\n{fields}"), body)
}

fn linked(key: &str) -> String {
    let link = "Link: </elsewhere>; rel=\"jwks\", </else>; rel=\"help\"";
    response_with("200 OK", link, &envelope(&format!("\"{key}\"")))
}

#[tokio::test]
async fn the_key_set_comes_from_the_same_server_when_it_changed() {
    let set = |keys: &[&str]| response_with("200 OK", "ETag: \"1\"", &set_of(keys));
    let (address, heads) = responding([
        linked(ONE),
        set(&[ONE, OTHER]),
        linked(ONE),
        response("304 Not Modified", ""),
        linked(ONE),
        response("503 Service Unavailable", ""),
        linked(ONE),
        set(&[OTHER]),
        linked(OTHER),
        set(&[OTHER]),
    ]);
    let mut source = source_of(address, SigningType::Ecdsa);
    for (expected, known) in [
        (Ok(2), false),
        (Ok(2), true),
        (
            Err("the response to the request for the key set was 503 Service Unavailable"),
            true,
        ),
        (Err("the key set lacks the key of the key endpoint"), false),
        (Ok(1), false),
    ] {
        let fetched = source.fetch(None).await;
        let fetched = fetched.map(|fetched| fetched.keys.unwrap().keys().len());
        let fetched = fetched.map_err(|error| error.to_string());
        assert_eq!(fetched, expected.map_err(str::to_owned));
        assert!(heads.recv().unwrap().contains("appSecret"));
        let head = heads.recv().unwrap();
        let line = "GET /auth/.well-known/jwks.json HTTP/1.1\r\n";
        assert!(head.starts_with(line), "{head}");
        assert!(head.contains(&format!("\r\nhost: {address}\r\n")), "{head}");
        assert_eq!(head.contains("if-none-match: \"1\"\r\n"), known, "{head}");
    }
}

#[tokio::test]
async fn a_shared_secret_is_never_expected_in_a_key_set() {
    let (address, heads) = auth_server(linked(KEY));
    let keys = source(address).fetch(None).await.unwrap().keys.unwrap();
    assert!(!keys.keys()[0].is_named());
    let heads: Vec<_> = heads.try_iter().collect();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].contains("\r\nconnection: close\r\n"), "{heads:?}");
}

#[tokio::test]
async fn the_list_comes_from_a_server_that_rejects_the_application() {
    let link = "Link: </elsewhere>; rel=\"revocations\"";
    let accepted = response_with("200 OK", link, &envelope(&format!("\"{KEY}\"")));
    let list = || response("200 OK", "a list");
    let rejected = || response("401 Unauthorized", "");
    let (former, _heads) = responding([accepted, list()]);
    let (rejecting, heads) = responding([rejected(), list(), rejected(), list()]);
    let [former, rejecting] = [former, rejecting].map(|address| Instance {
        authority: address.to_string(),
        address: None,
        host: address.to_string(),
    });
    for was_accepted in [true, false] {
        let mut source = source_at("http://auth/auth", SigningType::Hmac, PeerFiles::default());
        source.settings.wants_list = true;
        if was_accepted {
            source.fetch_from(&former, None).await.unwrap();
        }
        source.fetch_from(&rejecting, None).await.unwrap_err();
        let list = source.fetch_list(None).await;
        let FetchedList::Received(list) = list else {
            unreachable!("{list:?}");
        };
        assert_eq!(list, "a list", "{was_accepted}");
        assert!(heads.recv().unwrap().contains("appSecret"));
        let head = heads.recv().unwrap();
        let line = "GET /auth/.well-known/revocations HTTP/1.1\r\n";
        assert!(head.starts_with(line), "{head}");
    }
}
