//! Every statement of the table, and requests that carry none.

use serde_json::Value;
use tests::actors::auth_server::{AuthServer, TOKEN_REVOKED};
use tests::actors::client::FORM;
use tests::actors::sidecar::Sidecar;
use tests::actors::token_forge::lay_over;
use tests::tables::Verdicts;
use tests::tables::template::{fill, moment};
use tests::wire::clock;
use tests::wire::message::Message;

use super::{Foreign, Form, Group, RECEIVER, Session, USUAL_KEY, log_out};

/// A statement that was sent, and two tokens of its user.
struct Sent<'t> {
    name: &'t str,
    group: &'t Group,
    response: Message,
    /// Of the session.
    own: String,
    /// Of another session of the user.
    other: String,
}

#[test]
fn each_statement_ends_what_it_names_and_no_more() {
    let foreign = Foreign::publish();
    let server = foreign.server().ready();
    let groups = foreign.groups.iter().enumerate();
    let sent: Vec<_> = groups
        .flat_map(|(number, group)| send_all(&foreign, &server, number, group))
        .collect();
    // The list at the start has all of it.
    let last = foreign.session("idp", "last", "last");
    assert_eq!(log_out(&server, &last, "last"), 200);
    let sidecar = foreign.sidecar(&server).with_all_keys();
    sidecar.until_revoked(&last.access());
    let mut verdicts = Verdicts::default();
    for one in &sent {
        let (found, description) = (one.outcome(&sidecar), one.member("description"));
        let Group {
            form, expect, says, ..
        } = one.group;
        let good = found == *expect && description.contains(says);
        let difference = (!good).then(|| format!("{found} ({description}), not {expect} ({says})"));
        verdicts.row(&format!("{form:?}: {}", one.name), difference);
    }
    verdicts.conclude();
}

fn send_all<'t>(
    foreign: &'t Foreign,
    server: &AuthServer,
    number: usize,
    group: &'t Group,
) -> Vec<Sent<'t>> {
    let kinds = [
        ("payload", &group.payloads),
        ("change", &group.changes),
        ("header", &group.headers),
    ];
    let rows = kinds
        .into_iter()
        .flat_map(|(kind, rows)| rows.iter().map(move |row| (kind, row)));
    let send = |(row, (kind, (name, text))): (usize, (&str, (&'t String, &String)))| {
        let (id, issuer) = (format!("{number}-{row}"), group.issuer.as_deref());
        let session = |kind: &str| {
            let issuer = issuer.unwrap_or("idp");
            foreign.session(issuer, &format!("{kind}{id}"), &format!("u{id}"))
        };
        let (own, other) = (session("s").access(), session("o").access());
        let statement = statement(&session("s"), group, &id, (kind, text));
        Sent {
            name,
            group,
            response: group.form.send(server, &statement),
            own,
            other,
        }
    };
    rows.enumerate().map(send).collect()
}

/// Returns the statement of a row of this kind.
fn statement(session: &Session<'_>, group: &Group, jti: &str, row: (&str, &str)) -> String {
    let text = filled(session, jti, row.1);
    let key = group.sign.as_deref().unwrap_or(USUAL_KEY);
    let header = group.header.as_deref().unwrap_or(group.form.header());
    let mut claims = session.claims(group.form, jti);
    match row.0 {
        "payload" => return session.signed(key, header, &text),
        "header" => return session.signed(key, &text, &claims.to_string()),
        _ => lay_over(&mut claims, &serde_json::from_str(&text).unwrap()),
    }
    session.signed(key, header, &claims.to_string())
}

fn filled(session: &Session<'_>, jti: &str, text: &str) -> String {
    let named = |name: &str| match name {
        "iss" => Some(session.issuer().into_bytes()),
        "iss:idp" => Some("https://idp.example".into()),
        "sid" => Some(session.sid.clone().into_bytes()),
        "sub" => Some(session.sub.clone().into_bytes()),
        "jti" => Some(jti.into()),
        _ => moment(name, clock::now()),
    };
    String::from_utf8(fill(text, named)).unwrap()
}

impl Sent<'_> {
    /// Returns the code of the error, or what has ended.
    fn outcome(&self, sidecar: &Sidecar) -> String {
        let verdicts = [&self.own, &self.other].map(|token| sidecar.verdict_of(token));
        let ended = match verdicts.each_ref().map(String::as_str) {
            ["200", "200"] => "nothing",
            [TOKEN_REVOKED, "200"] => "session",
            [TOKEN_REVOKED, TOKEN_REVOKED] => "user",
            _ => return format!("{verdicts:?}"),
        };
        let status = self.response.status();
        match (self.group.form, status) {
            (Form::Logout, 200) | (Form::Event, 202) => ended.to_owned(),
            (_, 400) if ended == "nothing" => self.member("error"),
            _ => format!("{status} and {ended}"),
        }
    }

    /// Returns a member of the body of an error, which the two forms name differently.
    fn member(&self, name: &str) -> String {
        let name = match (self.group.form, name) {
            (Form::Logout, "description") => "error_description",
            (Form::Event, "error") => "err",
            _ => name,
        };
        let body: Value = serde_json::from_slice(&self.response.body).unwrap_or_default();
        body[name].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn a_request_without_a_statement_is_an_error_of_its_form() {
    let foreign = Foreign::publish();
    let server = foreign.server().ready();
    let good = foreign.session("idp", "s", "u").ended(Form::Logout, "j");
    let client = server.anonymous();
    for (line, body) in [
        (FORM, ""),
        (FORM, "logout_token="),
        (FORM, "logout_token=a.b.c"),
        (FORM, "logout_token={}&logout_token={}"),
        (FORM, "token={}"),
        (
            "Content-Type: application/json",
            "{\"logout_token\":\"{}\"}",
        ),
        ("Content-Type: application/jwt", "{}"),
        ("X-Nothing: 1", "logout_token={}"),
    ] {
        let request = client.request("POST", RECEIVER).line(line);
        let response = client.send(&request.body(body.replace("{}", &good)));
        assert_eq!(response.status(), 400, "{line} {body}");
        assert_eq!(response.json()["error"], "invalid_request", "{line} {body}");
        assert_eq!(response.header("cache-control"), ["no-store"], "{line}");
    }
    for body in ["", "a.b.c", "{}"] {
        let response = Form::Event.send(&server, body);
        assert_eq!(response.status(), 400, "{body}");
        assert_eq!(response.json()["err"], "invalid_request", "{body}");
    }
    assert_eq!(client.status(RECEIVER), 405);
}
