//! `sidecar explain` predicts what `sidecar serve` does: each row of `odd_requests.toml` goes to
//! the service and to the explanation.
//!
//! Left out, because `explain` cannot take them: bytes that are no field and no target (a bare line
//! feed, a folded line, a blank before a colon), another version than HTTP/1.1, no `Host` at all,
//! and momentary states (a service that is away, too many requests at once, a key that is fetched
//! early).

use serde_json::{Value, json};
use tests::actors::stack::ForgedStack;
use tests::tables::template::fill;
use tests::tables::{self, OddRequest, OddRequests, Verdicts};
use tests::wire::clock;
use tests::wire::message::Message;
use tests::wire::raw_client::RawClient;

const RULES: [&str; 10] = [
    "--public-path=/static/**",
    "--public-path=/health",
    "--optional-auth-path=/feed/**",
    "--token-cookie=ticket",
    "--websocket-token",
    "--cors-origin=https://app.example",
    "--cookie-origin=https://shop.example",
    "--forwarded=append",
    "--claim-header=X-User-Id=userId,X-Forwarded-Email=email",
    "--user-header-encoding=base64url",
];

/// The outcome of a request, in the words of the table, and the head that the service got.
#[derive(Debug, PartialEq, Eq)]
struct Fate {
    outcome: String,
    head: Option<Vec<String>>,
}

/// An explanation of a request, with what it found.
struct Explained {
    fate: Fate,
    found: String,
}

/// A row with its tokens.
struct Request {
    method: String,
    target: String,
    lines: Vec<String>,
    body: String,
}

impl Request {
    fn of(row: &OddRequest, named: impl Fn(&str) -> Option<Vec<u8>> + Copy) -> Self {
        let text = |template: &str| String::from_utf8(fill(template, named)).unwrap();
        let mut lines: Vec<String> = row.lines.iter().map(|line| text(line)).collect();
        if !lines.iter().any(|line| line.starts_with("Host:")) {
            lines.insert(0, "Host: a.example".to_owned());
        }
        Self {
            method: row.method.clone(),
            target: text(&row.target),
            lines,
            body: row.body.clone(),
        }
    }

    fn sent_to(&self, stack: &ForgedStack) -> Fate {
        let lines = self.lines.join("\r\n");
        let first = format!("{} {} HTTP/1.1", self.method, self.target);
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(format!("{first}\r\n{lines}\r\n\r\n{}", self.body).as_bytes());
        let response = client.response(&self.method);
        let received = stack.service.take_requests();
        assert!(received.len() <= 1, "{received:?}");
        let received = received.first();
        let lines = received.map(Message::header_lines).unwrap_or_default();
        assert!(
            !lines.iter().any(|line| line.contains("forged")),
            "{lines:?}"
        );
        let outcome = match received {
            _ if response.status() >= 400 => response.verdict(),
            None => "responded".to_owned(),
            Some(request) if request.header("X-Current-User").is_empty() => "passed".to_owned(),
            Some(_) => "verified".to_owned(),
        };
        Fate {
            outcome,
            head: received.map(head_of),
        }
    }

    fn explained_by(&self, stack: &ForgedStack) -> Explained {
        let arguments = ["--json", "-X", &self.method, "--", &self.target];
        let end = stack.sidecar.explain(&arguments, &self.lines);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        for line in &self.lines {
            let signature = line.rsplit('.').next().filter(|_| line.contains("eyJ"));
            assert!(!signature.is_some_and(|signature| end.stdout.contains(signature)));
        }
        let explanation: Value = serde_json::from_str(&end.stdout).unwrap();
        let outcome = match explanation["reason"].as_str() {
            Some(reason) => format!("{} {reason}", explanation["status"]),
            None => explanation["outcome"].as_str().unwrap().to_owned(),
        };
        let checks = explanation["checks"].as_array().unwrap();
        let failed = checks.iter().filter(|check| check["outcome"] == "failed");
        let rejected = usize::from(!explanation["reason"].is_null());
        assert_eq!(failed.count(), rejected, "{explanation}");
        let line = |line: &Value| line.as_str().unwrap().to_owned();
        let head = explanation["service"].as_array();
        let fate = Fate {
            outcome,
            head: head.map(|lines| comparable(lines.iter().map(line).collect())),
        };
        let found = explanation["found"].as_array().into_iter().flatten();
        let found: Vec<_> = found.map(line).collect();
        Explained {
            fate,
            found: found.join("; "),
        }
    }
}

fn head_of(request: &Message) -> Vec<String> {
    let mut lines = vec![request.first_line()];
    lines.extend(request.header_lines());
    comparable(lines)
}

/// Masks tokens and sorts fields: the order of fields with different names has no meaning.
fn comparable(mut lines: Vec<String>) -> Vec<String> {
    for line in &mut lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let name = name.to_lowercase();
        let value = value.trim();
        if name == "authorization" {
            let (scheme, _) = value.split_once(' ').unwrap_or((value, ""));
            *line = format!("{name}: {scheme} [as it was sent]");
        } else if let Some((before, token)) = value.split_once("ticket=") {
            let after = token.split_once(';').map_or("", |(_, after)| after);
            *line = format!("{name}: {before}ticket=[as it was sent];{after}");
        } else if line.contains(':') && !line.ends_with("HTTP/1.1") {
            *line = format!("{name}: {value}");
        }
    }
    lines.sort();
    lines
}

#[test]
fn explain_says_what_serve_does() {
    let stack = ForgedStack::with_flags(RULES);
    let now = clock::now();
    let with = |claims: Value| stack.forge.token(now, &claims).into_bytes();
    let same = stack.token();
    let named = |name: &str| match name {
        // Each of the others has a signature of its own.
        "same" => Some(same.clone().into_bytes()),
        "token" => Some(with(Value::Null)),
        "expired" => Some(with(json!({"exp": now - 100}))),
        "bound" => Some(with(
            json!({"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}}),
        )),
        "email" => Some(with(json!({"email": "ü, 50% <a@b>"}))),
        "crowded" => Some(with(json!({"email": "ü".repeat(1100)}))),
        "early" => Some(with(json!({"nbf": now + 1000}))),
        "untrusted" => Some(stack.forge.untrusted_token(now, &Value::Null).into_bytes()),
        _ => None,
    };

    let table: OddRequests = tables::load("odd_requests.toml");
    let mut verdicts = Verdicts::default();
    for row in &table.row {
        let request = Request::of(row, named);
        let fate = request.sent_to(&stack);
        let name = format!("{} {} {:?}", row.method, row.target, row.lines);
        let expected = (fate.outcome != row.expect).then(|| {
            let (expect, why) = (&row.expect, &row.why);
            format!("{} and not {expect}, {why}", fate.outcome)
        });
        verdicts.row(&name, expected);
        let Explained {
            fate: explained,
            found,
        } = request.explained_by(&stack);
        let difference =
            (explained != fate).then(|| format!("\n serve: {fate:?}\n explain: {explained:?}"));
        verdicts.row(&name, difference);
        let lacks = (!found.contains(&row.found)).then(|| format!("explain found {found:?}"));
        verdicts.row(&name, lacks);
    }
    assert!(verdicts.checked() >= 2 * 60);
    verdicts.conclude();
}
