//! Clients that hold connections: they keep no other client out, on no port of either program.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tests::actors::auth_server::AuthServerPlan;
use tests::actors::stack::ForgedStack;
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::h2_frames::FrameClient;
use tests::wire::loopback::connect_as;
use tests::wire::metrics::rejections;
use tests::wire::raw_client::RawClient;
use tests::wire::tls::Trust;

/// Connections that a port has room for, and more than that.
const SLOTS: &str = "100";
const HELD: usize = 120;
/// Two requests of another client each, and two more connections of the attackers.
const ROUNDS: usize = 20;
/// The attackers have the addresses from here on; the other client is 127.0.0.1.
const FIRST_ATTACKER: usize = 2;

/// A way to hold a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Silent,
    HalfHead,
    /// After a request.
    Kept,
    HalfHandshake,
    /// HTTP/2 without a stream.
    Http2,
    SlowBody,
    /// Responses that are not read.
    Unread,
}

#[derive(Debug)]
struct Port {
    address: SocketAddr,
    path: &'static str,
    trust: Option<Trust>,
}

/// Sends a request on a connection, and returns the status of the response.
type Exchange<'p> = Box<dyn FnMut() -> io::Result<u16> + 'p>;

impl Port {
    fn plain(address: SocketAddr, path: &'static str) -> Self {
        let trust = None;
        Self {
            address,
            path,
            trust,
        }
    }

    fn request(&self, method: &str, fields: &str) -> Vec<u8> {
        let path = self.path;
        format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
    }

    fn client(&self) -> io::Result<Exchange<'_>> {
        let request = self.request("GET", "");
        if let Some(trust) = &self.trust {
            let mut client = trust.connect(self.address)?;
            return Ok(Box::new(move || {
                client.send(&request);
                Ok(client.try_response("GET")?.status())
            }));
        }
        let mut client = RawClient::try_connect(self.address)?;
        Ok(Box::new(move || {
            client.send(&request);
            Ok(client.try_response("GET")?.status())
        }))
    }

    fn hold(&self, hold: Hold, client: usize) -> Option<TcpStream> {
        let client = u8::try_from(client).unwrap();
        let socket = connect_as(client, self.address).ok()?;
        if hold == Hold::Http2 {
            return Some(FrameClient::on(socket).into_socket());
        }
        let mut client = RawClient::on(socket);
        match hold {
            Hold::Silent | Hold::Http2 => {}
            Hold::Unread => {
                // Rejected, and more than the buffers on the way hold.
                let request = b"GET /orders/list HTTP/1.1\r\nHost: a\r\n\r\n";
                client.handle().set_nonblocking(true).ok()?;
                let _ = client.handle().write(&request.repeat(20_000));
            }
            Hold::HalfHead => client.send(b"GET / HTTP/1.1\r\nHost: "),
            Hold::HalfHandshake => client.send(&[0x16, 3, 1, 2, 0]),
            Hold::SlowBody => client.send(&self.request("POST", "Content-Length: 5\r\n")),
            Hold::Kept => {
                client.send(&self.request("GET", ""));
                client.try_response("GET").ok()?;
            }
        }
        Some(client.handle())
    }
}

/// Holds connections from so many addresses while another client sends requests, on a kept
/// connection where the port has them, and on new ones.
fn keeps_no_other_client_out(port: &Port, hold: Hold, addresses: usize, is_kept: bool) {
    let mut numbers = (0..addresses).cycle().map(|number| FIRST_ATTACKER + number);
    let mut begin = || port.hold(hold, numbers.next().unwrap());
    let mut kept = is_kept.then(|| port.client().unwrap());
    let mut held = Vec::new();
    let mut responses = Vec::new();
    for round in 0..ROUNDS {
        if let Some(kept) = &mut kept {
            responses.push(kept().map_err(|error| error.to_string()));
        }
        let new = port.client().and_then(|mut exchange| exchange());
        responses.push(new.map_err(|error| error.to_string()));
        let more = if round == 0 { HELD } else { 2 };
        held.extend((0..more).map(|_| begin()));
    }
    let lost: Vec<_> = responses.iter().filter(|it| **it != Ok(200)).collect();
    assert!(lost.is_empty(), "{hold:?} from {addresses}: {lost:?}");
}

/// RFC 9113 §6.8.
const GOAWAY: u8 = 7;
const ONE_OR_MANY: [usize; 2] = [1, 20];

#[test]
fn held_connections_keep_no_client_out_of_the_sidecar() {
    let limit = ["--max-connections", SLOTS];
    let stack = ForgedStack::with_public(limit);
    let server = AuthServerPlan::new().flags(limit).ready();
    let holds = [Hold::Silent, Hold::HalfHead, Hold::Kept, Hold::Http2];
    for (address, path, holds) in [
        (stack.sidecar.address(), "/orders/public/x", &holds[..]),
        (server.address(), "/auth/.well-known/jwks.json", &holds[..3]),
    ] {
        let port = Port::plain(address, path);
        for hold in holds {
            for addresses in ONE_OR_MANY {
                keeps_no_other_client_out(&port, *hold, addresses, true);
            }
        }
        keeps_no_other_client_out(&port, Hold::SlowBody, 1, true);
    }
}

/// Runs a program with so few file descriptors.
fn with_descriptors(count: usize) -> Vec<String> {
    vec!["prlimit".to_owned(), format!("--nofile={count}")]
}

/// The log of every accept that fails.
const NO_DESCRIPTOR: &str = "Too many open files";

#[test]
fn connections_that_come_too_fast_take_no_descriptors() {
    let few = || with_descriptors(256);
    let stack = ForgedStack::with(|plan| plan.public_paths(["/public/**"]).under(few()));
    let server = AuthServerPlan::new().under(few()).ready();
    for port in [
        Port::plain(stack.sidecar.address(), "/orders/public/x"),
        Port::plain(stack.sidecar.admin(), "/livez"),
        Port::plain(server.address(), "/auth/.well-known/jwks.json"),
        Port::plain(server.admin(), "/livez"),
    ] {
        let mut held = Vec::new();
        for _ in 0..ROUNDS {
            let burst = (0..600).map(|_| port.hold(Hold::Silent, FIRST_ATTACKER));
            // The last ones are closed meanwhile.
            held = burst.collect();
            assert_eq!(port.client().unwrap()().unwrap(), 200, "{port:?}");
        }
        drop(held);
    }
    for process in [stack.sidecar.process(), server.process()] {
        assert!(!process.output().contains(NO_DESCRIPTOR));
    }
}

#[test]
fn idle_connections_make_room_where_no_descriptor_is_left() {
    let stack = ForgedStack::with(|plan| {
        let plan = plan.public_paths(["/public/**"]);
        plan.under(with_descriptors(150))
            .flags(["--max-connections", "500"])
    });
    let port = Port::plain(stack.sidecar.address(), "/orders/public/x");
    let probe = Port::plain(stack.sidecar.admin(), "/livez");
    let mut held = Vec::new();
    for round in 0..ROUNDS {
        held.extend((0..20).map(|number| port.hold(Hold::Kept, FIRST_ATTACKER + number)));
        for port in [&port, &probe] {
            assert_eq!(port.client().unwrap()().unwrap(), 200, "{round}");
        }
    }
    assert!(stack.sidecar.process().output().contains(NO_DESCRIPTOR));
}

#[test]
fn unread_rejections_keep_no_client_out_of_the_sidecar() {
    let stack = ForgedStack::with_public(["--max-connections", "4"]);
    let port = Port::plain(stack.sidecar.address(), "/orders/public/x");
    let held: Vec<_> = (0..4)
        .map(|number| port.hold(Hold::Unread, FIRST_ATTACKER + number))
        .collect();
    let mut before = 0;
    wait::until("rejections that are not read", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = rejections(stack.sidecar.admin(), "token_missing");
        std::mem::replace(&mut before, now) == now && now > 0
    });
    assert_eq!(port.client().unwrap()().unwrap(), 200);
    drop(held);
}

#[test]
fn a_request_whose_connection_gives_way_is_counted() {
    let stack = ForgedStack::with_public(["--max-connections", "1"]);
    let mut held = TcpStream::connect(stack.sidecar.address()).unwrap();
    held.write_all(b"POST /orders/x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        .unwrap();
    // It has its rejection, and the sidecar waits for the body.
    held.read_exact(&mut [0]).unwrap();
    let port = Port::plain(stack.sidecar.address(), "/orders/public/x");
    assert_eq!(port.client().unwrap()().unwrap(), 200);
    wait::until("the rejection to be counted", || {
        rejections(stack.sidecar.admin(), "token_missing") == 1
    });
}

#[test]
fn half_handshakes_keep_no_client_out_of_either_program() {
    let authority = Authority::new();
    let certificate = authority.issue_server(&["127.0.0.1"]);
    let (limit, tls) = (["--max-connections", SLOTS], certificate.flags());
    let stack = ForgedStack::with(|plan| {
        let plan = plan.public_paths(["/public/**"]);
        plan.flags(limit).flags(&tls)
    });
    let plan = AuthServerPlan::new().flags(limit);
    let server = plan.tls(&authority, &certificate).ready();
    for (address, path) in [
        (stack.sidecar.address(), "/orders/public/x"),
        (server.address(), "/auth/.well-known/jwks.json"),
    ] {
        let port = Port {
            trust: Some(authority.client()),
            ..Port::plain(address, path)
        };
        for hold in [Hold::Silent, Hold::HalfHandshake] {
            for addresses in ONE_OR_MANY {
                keeps_no_other_client_out(&port, hold, addresses, true);
            }
        }
    }
}

#[test]
fn a_handshake_that_does_not_end_is_closed() {
    let authority = Authority::new();
    let certificate = authority.issue_server(&["127.0.0.1"]);
    let stack = ForgedStack::with(|plan| {
        plan.flags(["--request-header-timeout", "1"])
            .flags(certificate.flags())
    });
    let plan = AuthServerPlan::new().flags(["--request-timeout", "1"]);
    let server = plan.tls(&authority, &certificate).ready();
    for address in [stack.sidecar.address(), server.address()] {
        assert!(RawClient::connect(address).is_at_end());
    }
}

#[test]
fn connections_of_a_trusted_proxy_give_way_last() {
    let stack =
        ForgedStack::with_public(["--max-connections", SLOTS, "--trusted-proxy", "127.0.0.2"]);
    let port = Port::plain(stack.sidecar.address(), "/orders/public/x");
    let proxy = || RawClient::on(connect_as(2, port.address).unwrap());
    let exchange = |connection: &mut RawClient| {
        connection.send(&port.request("GET", ""));
        connection
            .try_response("GET")
            .map(|response| response.status())
            .ok()
    };
    let mut pool: Vec<_> = (0..50).map(|_| proxy()).collect();
    let mut served = || pool.iter_mut().filter_map(exchange).count();
    assert_eq!(served(), 50);
    let attackers: Vec<_> = (0..HELD)
        .map(|number| port.hold(Hold::Kept, 3 + number % 20))
        .collect();
    assert_eq!(served(), 50);
    drop(attackers);
    // Those of other clients have room beside a proxy with more than there are slots.
    let more: Vec<_> = (0..HELD).map(|_| proxy()).collect();
    let mut other = port.client().unwrap();
    assert_eq!(other().unwrap(), 200);
    drop(more);
}

#[test]
fn http_2_that_gives_way_is_sent_a_goaway() {
    let stack = ForgedStack::with_flags(["--max-connections", "5"]);
    let connect = || FrameClient::connect(stack.sidecar.address());
    let mut first = connect();
    assert_eq!(first.read_acknowledged(1), 0);
    let more: Vec<_> = (0..4).map(|_| connect()).collect();
    let goaway = std::iter::from_fn(|| first.frame_from_server()).find(|it| it.kind == GOAWAY);
    assert!(goaway.is_some());
    drop(more);
}

#[test]
fn a_fresh_request_outlives_later_connections() {
    let stack = ForgedStack::with_public(["--max-connections", "16"]);
    let port = Port::plain(stack.sidecar.address(), "/orders/public/x");
    let begin = |hold, count| -> Vec<_> { (0..count).map(|it| port.hold(hold, 2 + it)).collect() };
    let kept = begin(Hold::Kept, 16);
    let mut fresh = RawClient::connect(port.address);
    fresh.send(b"GET /orders/public/x HTTP/1.1\r\n");
    let silent = begin(Hold::Silent, 8);
    fresh.send(b"Host: a\r\n\r\n");
    assert_eq!(fresh.response("GET").status(), 200);
    drop((kept, silent));
}
