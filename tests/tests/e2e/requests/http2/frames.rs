//! Heads, frames and floods of our own making, which no library of HTTP/2 sends.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;
use tests::actors::auth_server::admin_get;
use tests::tables::{self, Verdicts};
use tests::wire::h2_frames::header_block;
use tests::wire::metrics::rejections;

use super::*;

/// `http2_heads.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heads {
    row: Vec<Head>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    change: Vec<Vec<String>>,
    #[serde(default)]
    at_end: bool,
    fate: String,
}

const MALFORMED: &str = "request_malformed";

#[test]
fn a_head_that_no_client_should_send_reaches_no_service() {
    let stack = stack();
    let bearer = bearer(&stack);
    let good = usual("/orders/list", &bearer);
    let (mut responded, mut verdicts) = (0, Verdicts::default());
    let mut counts = BTreeMap::new();
    for row in tables::load::<Heads>("http2_heads.toml").row {
        let mut fields = good.clone();
        for change in &row.change {
            let is_instead = change[0].starts_with(':') && !row.at_end;
            if is_instead {
                fields.retain(|(name, _)| *name != change[0]);
            }
            if let [name, value] = &change[..] {
                let at = if is_instead { 0 } else { fields.len() };
                fields.insert(at, (name, value));
            }
        }
        let mut client = FrameClient::connect(stack.sidecar.address());
        client.head(1, &fields, true);
        let fate = match client.fate(1) {
            Fate::Reset => "reset".to_owned(),
            Fate::Closed => "closed".to_owned(),
            Fate::Response(body) => reason_of(&body),
        };
        verdicts.row(
            &format!("{row:?}"),
            (fate != row.fate).then(|| fate.clone()),
        );
        responded += usize::from(fate == MALFORMED);
        assert_eq!(stack.service.take_requests().len(), 0, "{row:?}");
        client.head(3, &good, true);
        let next = match &*fate {
            "closed" => Fate::Closed,
            _ => Fate::Response("echo".to_owned()),
        };
        assert_eq!(client.fate(3), next, "{row:?}");
        stack.service.take_requests();
        let has_no_response = matches!(&*fate, "reset" | "closed");
        let reason = if has_no_response {
            MALFORMED.to_owned()
        } else {
            fate
        };
        let count = counts.entry(reason.clone()).or_insert(0);
        *count += 1;
        wait::until(&reason, || {
            rejections(stack.sidecar.admin(), &reason) == *count
        });
    }
    verdicts.conclude();
    // What the library ends gets no status.
    stack.sidecar.until_logged("reason=\"request_malformed\"");
    wait::until("the line of each response", || {
        let log = stack.sidecar.process().stderr();
        let with_status = log.matches("reason=\"request_malformed\" status=");
        with_status.count() == responded
    });
}

fn reason_of(body: &str) -> String {
    let envelope: Value = serde_json::from_str(body).unwrap_or_default();
    envelope["data"]["reason"]
        .as_str()
        .unwrap_or(body)
        .to_owned()
}

/// Returns the number of requests that were rejected as malformed.
fn malformed(admin: SocketAddr) -> usize {
    usize::try_from(rejections(admin, MALFORMED)).unwrap()
}

/// Frames that carry no part of a message would keep a core busy.
#[test]
fn a_flood_of_frames_ends_the_connection() {
    const PING: (u8, &[u8]) = (6, &[0; 8]);
    const SETTINGS: (u8, &[u8]) = (4, &[0, 3, 0, 0, 0, 100]);
    const PRIORITY: (u8, &[u8]) = (2, &[0, 0, 0, 0, 15]);
    const UNKNOWN: (u8, &[u8]) = (99, b"x");
    const EMPTY: (u8, &[u8]) = (0, b"");
    let stack = stack();
    let bearer = bearer(&stack);
    for (kind, payload) in [PING, SETTINGS, PRIORITY, UNKNOWN, EMPTY] {
        let mut client = FrameClient::connect(stack.sidecar.address());
        let mut fields = usual("/orders/list", &bearer);
        fields[0].1 = "POST";
        client.head(1, &fields, false);
        let stream = u32::from([0, 2].contains(&kind));
        for _ in 0..5000 {
            client.frame(kind, 0, stream, payload);
        }
        assert!(client.is_closed(), "{kind}");
    }
    // The library has a limit of its own for empty frames of a body.
    wait::until("the floods to be counted", || {
        malformed(stack.sidecar.admin()) >= 4
    });
}

#[test]
fn pings_beside_a_call_are_no_flood() {
    let stack = stack();
    let bearer = bearer(&stack);
    let mut client = FrameClient::connect(stack.sidecar.address());
    for index in 0..800_u32 {
        let stream = 2 * index + 1;
        client.head(stream, &usual("/orders/list", &bearer), true);
        for _ in 0..4 {
            client.frame(6, 0, 0, &[0; 8]);
        }
        assert_eq!(client.fate(stream), Fate::Response("echo".to_owned()));
    }
}

#[test]
fn resets_keep_their_code_both_ways() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let bearer = bearer(&stack);
    let mut client = FrameClient::connect(stack.sidecar.address());
    let mut fields = fields_of("POST", "/orders/pkg.Service/Chat");
    fields.extend([
        ("content-type", "application/grpc"),
        ("authorization", &*bearer),
    ]);
    client.head(1, &fields, false);
    client.frame(0, 0, 1, b"x");
    assert!(client.frames_of(1).any(|frame| frame.kind == 0));
    client.frame(3, 0, 1, &ENHANCE_YOUR_CALM.to_be_bytes());
    wait::until("the reset to arrive", || {
        service.resets() == [ENHANCE_YOUR_CALM]
    });
    let mut fields = usual("/orders/reset", &bearer);
    fields[0].1 = "POST";
    client.head(3, &fields, true);
    let reset = client.frames_of(3).find(|frame| frame.kind == 3).unwrap();
    assert_eq!(reset.payload, ENHANCE_YOUR_CALM.to_be_bytes());
}

/// `h2` rejects it before the filters see it.
#[test]
fn a_head_past_the_library_s_limit_is_a_bare_431() {
    let stack = stack();
    let client = H2Client::connect(stack.sidecar.address());
    let part = "a".repeat(30_000);
    for (parts, expected) in [(3, "431 request_header_too_large"), (5, "431")] {
        let fields: Vec<_> = (0..parts).map(|_| ("x", &*part)).collect();
        let request = client.request("GET", "/orders/public/x", &fields);
        let response = client.send(request, b"").unwrap();
        let bare = response.body.is_empty() && response.head.headers().is_empty();
        let found = if bare {
            response.head.status().as_str().to_owned()
        } else {
            response.verdict()
        };
        assert_eq!(found, expected);
    }
    let metrics = admin_get(stack.sidecar.admin(), "/metrics").text();
    let rejected = "postern_sidecar_requests_total{outcome=\"rejected\",reason=";
    let lines: Vec<_> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(rejected))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    assert_eq!(lines, ["\"request_header_too_large\",code=\"4xx\"} 1"]);
    // A request with a body also gets its stream reset.
    let fields: Vec<_> = (0..5).map(|_| ("x", &*part)).collect();
    let request = client.request("POST", "/orders/public/x", &fields);
    assert_eq!(client.send(request, b"x").unwrap().head.status(), 431);
    wait::until("the reset to be counted", || {
        malformed(stack.sidecar.admin()) == 1
    });
}

#[test]
fn a_breach_after_the_head_is_counted_once() {
    let stack = ForgedStack::with_flags(["--access-log=all"]);
    let bearer = bearer(&stack);
    let mut fields = usual("/orders/list", &bearer);
    fields[0].1 = "POST";
    fields.push(("content-length", "3"));
    type Breach = fn(&mut FrameClient);
    let breaches: [Breach; 3] = [
        |client| client.frame(0, 1, 1, b"four"),
        |client| client.frame(0, 1, 1, b"2"),
        // Trailers without the end of the stream.
        |client| client.head(1, &[("x", "y")], false),
    ];
    for (index, breach) in breaches.into_iter().enumerate() {
        let mut client = FrameClient::connect(stack.sidecar.address());
        client.head(1, &fields, false);
        breach(&mut client);
        assert_eq!(client.fate(1), Fate::Reset);
        // The line is written after the request is counted, or never.
        wait::until("the request's own line", || {
            let log = stack.sidecar.process().stderr();
            let lines = log.matches("outcome=\"aborted\" method=\"POST\" path=/orders/list");
            lines.count() == index + 1
        });
        assert_eq!(malformed(stack.sidecar.admin()), index + 1);
        let metrics = admin_get(stack.sidecar.admin(), "/metrics").text();
        let aborted = "postern_sidecar_requests_total{outcome=\"aborted\"";
        let counted = |line: &&str| line.starts_with(aborted) && !line.ends_with(" 0");
        assert_eq!(metrics.lines().find(counted), None);
    }
    let seen = stack.service.requests();
    assert!(seen.iter().all(|request| request.body != b"four"));
}

#[test]
fn an_oversize_head_is_rejected_before_it_is_whole() {
    let stack = stack();
    let bearer = bearer(&stack);
    let mut client = FrameClient::connect(stack.sidecar.address());
    client.frame(1, 1, 1, &header_block(&usual("/orders/list", &bearer)));
    let part = header_block(&[("x", &"a".repeat(16_000))]);
    for _ in 0..2000 {
        // The head never ends.
        client.frame(9, 0, 1, &part);
    }
    assert!(client.is_closed(), "CONTINUATION without end");
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn reset_streams_end_the_connection_and_nothing_else() {
    let stack = stack();
    let bearer = bearer(&stack);
    let mut client = FrameClient::connect(stack.sidecar.address());
    for index in 0..20_000_u32 {
        let stream = 2 * index + 1;
        client.head(stream, &usual("/orders/public/x", "x"), true);
        client.frame(3, 0, stream, &[0, 0, 0, 8]);
    }
    assert!(client.is_closed());
    let request =
        format!("GET /orders/list HTTP/1.1\r\nHost: a\r\nAuthorization: {bearer}\r\n\r\n");
    let response = exchange(stack.sidecar.address(), "GET", request.as_bytes());
    assert_eq!(response.status(), 200);
}
