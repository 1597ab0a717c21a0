//! `sidecar explain`: why a request is judged as it is, by the judge itself.
//!
//! Asked of a running sidecar (`POST /explain` on its admin port, which answers loopback peers
//! only), or worked out here from settings and a key file.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use contract::claim_mapping::ClaimMapping;
use contract::explanation::{Explanation, KeyFacts, Verdict};
use contract::keys::{KeySet, VerificationKey};
use contract::signing_type::SigningType;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use pingora::http::RequestHeader;
use process::admin_client;
use process::clock::unix_seconds;
use process::exit::Failure;
use process::file_read;
use process::output;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::admission::{Admission, RequestHead, Wire};
use crate::cli::explain_args::ExplainArgs;
use crate::config;
use crate::fields::nominated;
use crate::forwarded::Client;
use crate::keys::answer::{AnswerError, key_string};
use crate::keys::current::{CurrentKeys, KeyState};
use crate::keys::key_file::{Format, KeyFile};
use crate::marks::Marking;
use crate::rules::{CurrentRules, Rules};
use crate::status::Protected;

const PATH: &str = "/explain";
const JSON: &str = "application/json";
/// As large as a header block may be, in JSON.
const MAX_BODY_BYTES: usize = 128 * 1024;
/// The request is taken as sent by who asks, on this machine.
const ASKER: Client = Client {
    address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    tls: false,
};
const ONE_ANSWER: Duration = Duration::from_secs(5);

/// A request that was not sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    method: String,
    target: String,
    /// Name and value of each field, in their order.
    headers: Vec<(String, String)>,
    /// Seconds since the epoch; now where absent.
    at: Option<i64>,
}

/// Judges questions as the proxy judges requests.
#[derive(Debug, Clone)]
pub(crate) struct Explainer {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) keys: Arc<CurrentKeys>,
    pub(crate) marking: Marking,
}

impl Explainer {
    /// `POST /explain`.
    pub(crate) fn routes(self) -> Router {
        Router::new()
            .route(PATH, post(explain))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(Arc::new(self))
    }

    /// # Errors
    /// Where the question cannot be put into a request at all: which part of it.
    fn explain(&self, question: &Question, now: SystemTime) -> Result<Explanation, NoRequest> {
        let at = question.at.unwrap_or_else(|| unix_seconds(now));
        let request = request_of(question)?;
        let raw = raw_head(question);
        let mut explanation = Explanation {
            at,
            request: Some(format!("{} {}", question.method, question.target)),
            ..Explanation::default()
        };
        let head = RequestHead {
            method: &request.method,
            version: Version::HTTP_11,
            headers: &request.headers,
            wire: Wire::Http1(&raw),
            target_to_send: question.target.as_bytes(),
        };
        let state = self.keys.load();
        let usable = self.keys.usable(state.as_deref(), Instant::now());
        let rules = self.rules.load();
        let admission = rules
            .admission
            .admit_observed(head, usable, at, &mut explanation);
        let token = rules.admission.interceptor.token(&request.headers);
        let token = token.ok().flatten().map(|token| token.as_str().to_owned());
        if let Some(token) = &token {
            explanation.show_token(token);
        }
        explanation.keys = Some(key_facts(state.as_deref()));
        explanation.verdict = match &admission {
            Err(rejection) => Verdict::refused(*rejection),
            Ok(Admission::UserDetails(_) | Admission::Preflight) => Verdict::good("answered"),
            Ok(Admission::Forward(forward)) => Verdict::good(forward.outcome().as_str()),
        };
        if let Ok(Admission::Forward(forward)) = &admission {
            let sources = rules.admission.interceptor.sources();
            let mut head = without_hop_by_hop(request);
            let marks = self.marking.of(&head.headers);
            let prepared = rules.service_head.prepare(
                &mut head,
                Version::HTTP_11,
                forward,
                &marks,
                &rules.admission,
                ASKER,
            );
            explanation.head = prepared
                .ok()
                .map(|()| lines_of(&head, sources.cookie.as_deref()));
        }
        Ok(explanation)
    }
}

fn key_facts(state: Option<&KeyState>) -> KeyFacts {
    state.map_or_else(KeyFacts::default, |state| KeyFacts {
        age_seconds: Some(state.age(Instant::now()).as_secs()),
        generation: Some(state.generation()),
        ..KeyFacts::of(state.keys())
    })
}

/// Why nothing can be judged: no client can send this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NoRequest {
    #[error("the question is not in JSON, or lacks a part")]
    Question,
    #[error("method: this is none of HTTP")]
    Method,
    #[error(
        "target: byte {place} is 0x{byte:02x}, which ends a target or the line; write %{byte:02X}"
    )]
    TargetByte { place: usize, byte: u8 },
    #[error("target: neither a path that begins with a slash nor http:// with a host")]
    Target,
    /// Never the value: it may be a token.
    #[error("header '{0}': this name or this value cannot be sent")]
    Header(String),
}

fn request_of(question: &Question) -> Result<RequestHeader, NoRequest> {
    let method = Method::from_bytes(question.method.as_bytes()).map_err(|_| NoRequest::Method)?;
    let target = question.target.as_bytes();
    let cannot_stand = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    if let Some(at) = target.iter().position(cannot_stand) {
        let (place, byte) = (at + 1, target.get(at).copied().unwrap_or_default());
        return Err(NoRequest::TargetByte { place, byte });
    }
    let mut request = RequestHeader::build(method, target, None).map_err(|_| NoRequest::Target)?;
    for (name, value) in &question.headers {
        let wrong = || NoRequest::Header(name.clone());
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
        request
            .append_header(name.clone(), value)
            .map_err(|_| wrong())?;
    }
    Ok(request)
}

/// The header block as it would arrive.
fn raw_head(question: &Question) -> Vec<u8> {
    let mut raw = format!("{} {} HTTP/1.1\r\n", question.method, question.target);
    for (name, value) in &question.headers {
        raw += &format!("{name}: {value}\r\n");
    }
    raw += "\r\n";
    raw.into_bytes()
}

/// What Pingora has removed before our last hand on the request: the fields that are for the next
/// hop only (RFC 9110 §7.6.1).
fn without_hop_by_hop(mut request: RequestHeader) -> RequestHeader {
    for name in nominated(&request.headers)
        .into_iter()
        .filter(|name| *name != header::UPGRADE)
    {
        request.remove_header(&name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        request.remove_header(name);
    }
    request
}

/// The request line and the fields, the token left out, also the one in the cookie of this name.
fn lines_of(head: &RequestHeader, token_cookie: Option<&str>) -> Vec<String> {
    let mut wire = Vec::new();
    head.header_to_h1_wire(&mut wire);
    let target = String::from_utf8_lossy(head.raw_path()).into_owned();
    let fields = String::from_utf8_lossy(&wire).into_owned();
    let fields = fields.lines().map(|line| {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        match name.to_ascii_lowercase().as_str() {
            "authorization" => format!("{name}: {}", without_token(value)),
            "cookie" => format!("{name}: {}", without_cookie(value, token_cookie)),
            _ => line.to_owned(),
        }
    });
    std::iter::once(format!("{} {target} HTTP/1.1", head.method))
        .chain(fields)
        .collect()
}

/// What is readable of it is shown elsewhere; its signature never is.
fn without_token(value: &str) -> String {
    match value.split_once(' ') {
        Some((scheme, _)) => format!("{scheme} [as it was sent]"),
        None => "[as it was sent]".to_owned(),
    }
}

fn without_cookie(value: &str, hidden: Option<&str>) -> String {
    let pairs = value.split(';').map(str::trim);
    let shown = pairs.map(|pair| match pair.split_once('=') {
        Some((name, _)) if Some(name) == hidden => format!("{name}=[as it was sent]"),
        _ => pair.to_owned(),
    });
    shown.collect::<Vec<_>>().join("; ")
}

async fn explain(
    State(explainer): State<Arc<Explainer>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // A page of a stranger in a browser on this machine cannot send this type unasked.
    if headers
        .get(header::CONTENT_TYPE)
        .is_none_or(|media_type| media_type != JSON)
    {
        return (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send application/json\n",
        )
            .into_response();
    }
    let question = serde_json::from_slice::<Question>(&body).map_err(|_| NoRequest::Question);
    let explanation = question.and_then(|question| explainer.explain(&question, SystemTime::now()));
    match explanation.map(|explanation| serde_json::to_vec(&explanation)) {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Ok(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

/// The command.
///
/// # Errors
/// When no sidecar answers, or what was given is no request.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    require_target(&args.target)?;
    let question = Question {
        method: args.method.clone(),
        target: args.target.clone(),
        headers: headers(args)?,
        at: args.at,
    };
    let explanation = match offline(args)? {
        None => ask(args, &question)?,
        Some(explainer) => {
            let explanation = explainer.explain(&question, SystemTime::now());
            let explanation = explanation.map_err(|why| Failure::Usage(why.to_string()))?;
            of_files(explanation)
        }
    };
    let text = if args.json {
        serde_json::to_string_pretty(&explanation)
            .map_err(|error| Failure::Software(error.to_string()))?
            + "\n"
    } else {
        explanation.to_string()
    };
    output::print(&text)
}

/// What no client would send as a target is a slip of the command line (RFC 9112 §3.2).
fn require_target(target: &str) -> Result<(), Failure> {
    let of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_absolute =
        |(scheme, _): (&str, &str)| !scheme.is_empty() && scheme.bytes().all(of_scheme);
    if target.starts_with('/') || target == "*" || target.split_once("://").is_some_and(is_absolute)
    {
        return Ok(());
    }
    let line = format!("'{target}' is no target of a request: it begins with a slash");
    Err(Failure::Usage(line))
}

/// The fields of the command line; `@-` stands for lines of standard input, where no other user of
/// the machine can see them.
fn headers(args: &ExplainArgs) -> Result<Vec<(String, String)>, Failure> {
    let mut headers = Vec::new();
    for given in &args.headers {
        if given == "@-" {
            let lines = file_read::text_of(std::io::stdin().lock(), MAX_BODY_BYTES as u64)
                .map_err(|why| Failure::Usage(format!("standard input: {why}")))?;
            for line in lines.lines().filter(|line| !line.trim().is_empty()) {
                headers.push(field(line)?);
            }
        } else {
            headers.push(field(given)?);
        }
    }
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        headers.insert(0, ("Host".to_owned(), "localhost".to_owned()));
    }
    Ok(headers)
}

/// The complaint does not repeat the field: it may hold a token.
fn field(line: &str) -> Result<(String, String), Failure> {
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| Failure::Usage("--header: expected 'NAME: VALUE'".to_owned()))?;
    // As it is written: this is how the service gets it.
    let name = name.trim();
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| Failure::Usage("--header: the name is none".to_owned()))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn ask(args: &ExplainArgs, question: &Question) -> Result<Explanation, Failure> {
    let json =
        serde_json::to_vec(question).map_err(|error| Failure::Software(error.to_string()))?;
    let answer = admin_client::post(args.admin.admin_listen, PATH, JSON, &json, ONE_ANSWER)?;
    match answer.status() {
        Some(200) => serde_json::from_str(&answer.body).map_err(|error| {
            Failure::Unavailable(format!("not the admin port of a sidecar: {error}"))
        }),
        Some(400) => Err(Failure::Usage(answer.body.trim_end().to_owned())),
        _ => Err(Failure::Unavailable(format!(
            "not the admin port of a sidecar: it answered {:?}",
            answer.status_line
        ))),
    }
}

/// The judge of these settings with the keys of a file; `None` where no file is named.
fn offline(args: &ExplainArgs) -> Result<Option<Explainer>, Failure> {
    let (keys, mapping) = match (&args.key_file, &args.jwks_file, &args.public_key_file) {
        (Some(file), ..) => (contract_keys(file, args.signing_type)?, None),
        (_, Some(file), _) => issuer(args, file, Format::JwkSet)?,
        (.., Some(file)) => issuer(args, file, Format::Pem)?,
        _ => return Ok(None),
    };
    let current = CurrentKeys::default();
    current.install(keys, Instant::now());
    let upstream = config::upstream_address(&args.service)?;
    Ok(Some(Explainer {
        rules: Arc::new(CurrentRules::new(Rules {
            admission: config::admission_rules(&args.rules, mapping, &upstream)?,
            service_head: config::service_head(&args.rules),
            protected: Protected::default(),
        })),
        keys: Arc::new(current),
        marking: args.marks.marking(),
    }))
}

/// Keys of a file were fetched by nobody.
fn of_files(explanation: Explanation) -> Explanation {
    let keys = explanation.keys.map(|facts| KeyFacts {
        keys: facts.keys,
        ..KeyFacts::default()
    });
    Explanation {
        keys,
        ..explanation
    }
}

/// The file holds what the auth server gives.
fn contract_keys(file: &Path, signing_type: SigningType) -> Result<KeySet, Failure> {
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::Config(format!("--key-file {}: {error}", file.display()))
    };
    let text = file_read::read_text(file, MAX_BODY_BYTES as u64).map_err(|why| unusable(&why))?;
    keys_of(signing_type, &text).map_err(|error| unusable(&error))
}

/// Those of the key endpoint's answer, of its key string alone, or of a JWK Set.
fn keys_of(signing_type: SigningType, text: &str) -> Result<KeySet, Box<dyn Error>> {
    // A shared secret is in no key set, and may begin with anything.
    let may_be_key_set = signing_type != SigningType::Hmac && text.trim_start().starts_with('{');
    let key = match key_string(StatusCode::OK, text.as_bytes()) {
        Ok(key) => key,
        Err(AnswerError::NotAnEnvelope) if may_be_key_set => {
            let allowed = [signing_type.algorithm()];
            return Ok(KeySet::from_jwks(text.as_bytes(), &allowed)?);
        }
        Err(AnswerError::NotAnEnvelope) => Zeroizing::new(text.to_owned()),
        Err(AnswerError::Refused { reason, .. }) => {
            return Err(format!("it holds a refusal ({reason})").into());
        }
        Err(error @ AnswerError::NotAString) => return Err(error.into()),
    };
    Ok(KeySet::nameless(VerificationKey::parse(
        signing_type,
        &key,
    )?))
}

/// Keys and claims of another issuer.
fn issuer(
    args: &ExplainArgs,
    path: &Path,
    format: Format,
) -> Result<(KeySet, Option<ClaimMapping>), Failure> {
    let file = KeyFile {
        path: path.to_owned(),
        format,
        algorithms: args.issuer_tokens.algorithms.clone(),
    };
    let keys = file
        .read()
        .map_err(|error| Failure::Config(format!("--{}: {error}", file.flag())))?;
    Ok((keys, Some(config::issuer_mapping(&args.issuer_tokens)?)))
}

#[cfg(test)]
mod tests {
    use attacks::keys::{Algorithm, SigningKey};
    use serde_json::json;

    use super::*;

    fn read(signing_type: SigningType, text: &str) -> Result<Vec<String>, String> {
        let keys = keys_of(signing_type, text).map_err(|error| error.to_string())?;
        let id = |key: &VerificationKey| key.id().as_str().to_owned();
        Ok(keys.keys().iter().map(id).collect())
    }

    #[test]
    fn a_key_is_read_alone_and_within_the_answer_of_the_endpoint() {
        let envelope = |success: bool, data: &serde_json::Value| {
            json!({"success": success, "status": 200, "msg": "", "data": data}).to_string()
        };
        let public = SigningKey::generate(Algorithm::ES256).served().to_string();
        let secret = "{\"a shared secret\": \"may look like JSON\"}";
        for (signing_type, key) in [
            (SigningType::Ecdsa, public.as_str()),
            (SigningType::Hmac, secret),
        ] {
            let alone = read(signing_type, key);
            assert_eq!(alone.as_ref().map(Vec::len), Ok(1), "{signing_type}");
            let answer = envelope(true, &json!(key));
            assert_eq!(read(signing_type, &answer), alone, "{signing_type}");
            let refusal = envelope(false, &json!({"reason": "application_unknown"}));
            assert_eq!(
                read(signing_type, &refusal),
                Err("it holds a refusal (application_unknown)".to_owned())
            );
            assert!(read(signing_type, &envelope(true, &json!(1))).is_err());
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        assert_eq!(
            without_token("Bearer a.b.secret"),
            "Bearer [as it was sent]"
        );
        assert_eq!(without_token("secret"), "[as it was sent]");
        let cookies = "a=1; t=a.b.secret;t=secret";
        assert_eq!(
            without_cookie(cookies, Some("t")),
            "a=1; t=[as it was sent]; t=[as it was sent]"
        );
        assert_eq!(without_cookie("t=1; u", None), "t=1; u");
    }

    #[test]
    fn a_field_is_a_name_and_a_value() {
        assert_eq!(
            field(" Accept:  a: b ").ok(),
            Some(("Accept".into(), "a: b".into()))
        );
        for line in ["", "token", "a b: c"] {
            assert_eq!(
                field(line).map_err(|failure| failure.code()),
                Err(64),
                "{line}"
            );
        }
    }
}
