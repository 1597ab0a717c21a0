//! Probes, memory and the end of a process (lessons A4, D27, D30).

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, admin_get, credentials};
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::programs::Program;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::{ForgedStack, Stack};
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::free_address::free_address;
use tests::wire::metrics::sum;
use tests::wire::raw_client::{RawClient, exchange};

/// Max private memory of an idle program. Pages of its executable come on top: the kernel maps them
/// as it likes and a debug build has many, so `make bench` measures the release builds whole.
const IDLE_LIMIT_KIB: u64 = 8 * 1024;

#[test]
fn lesson_d30_probes_and_metrics_have_their_own_port() {
    let stack = Stack::start();
    for admin in [stack.auth_server.admin(), stack.sidecar.admin()] {
        for path in ["/livez", "/readyz", "/startupz"] {
            assert_eq!(admin_get(admin, path).status(), 200, "{path}");
        }
        let metrics = admin_get(admin, "/metrics");
        assert_eq!(metrics.status(), 200);
        let media_type = metrics.header("content-type").concat();
        assert!(
            media_type.starts_with("text/plain; version=0.0.4"),
            "{media_type}"
        );
        let metrics = metrics.text();
        for line in [
            "# TYPE process_cpu_seconds_total counter\n",
            "\nprocess_open_fds ",
        ] {
            has(&metrics, line);
        }
        assert_eq!(admin_get(admin, "/nowhere").status(), 404);
    }
    for public in [stack.auth_server.anonymous(), stack.sidecar.anonymous()] {
        assert_eq!(public.send(&Request::new("GET", "/metrics")).status(), 401);
    }
}

#[test]
fn idle_each_program_holds_less_than_8_mb() {
    let stack = Stack::start();
    // One request first: it allocates what every later one reuses.
    stack
        .sidecar
        .bearing(&stack.auth_server.login())
        .get("/list");
    for (program, process) in [
        (Program::AuthServer, stack.auth_server.process()),
        (Program::Sidecar, stack.sidecar.process()),
    ] {
        let Some(held) = process.anonymous_kib() else {
            return tests::skip::skip(
                "the memory of idle programs",
                "run on Linux, which has /proc",
            );
        };
        // Bypasses the test runner's capture: the figure is worth seeing on success, too.
        let _ = writeln!(
            std::io::stderr().lock(),
            "{} idle: {held} KiB of its own",
            program.name()
        );
        assert!(held < IDLE_LIMIT_KIB, "{} holds {held} KiB", program.name());
    }
}

#[test]
fn both_programs_say_how_they_start_and_that_they_have_stopped() {
    let stack = ForgedStack::with_flags(["--lame-duck", "0"]);
    let server = AuthServerPlan::new().flags(["--lame-duck", "0"]).start();
    let of_sidecar = "starting version=|listen=|upstream=|keys_from=|draining: a second signal ends at once in_flight=0 connections=|\
                      drained|stopped requests=|uptime_s=";
    let of_server =
        "starting version=|listen=|store=|draining connections=|drained|stopped uptime_s=";
    for (process, parts) in [
        (stack.sidecar.into_process(), of_sidecar),
        (server.ready().into_process(), of_server),
    ] {
        process.terminate();
        let end = process.finished();
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        for part in parts.split('|') {
            assert!(end.stderr.contains(part), "{part}: {}", end.stderr);
        }
    }
}

#[test]
fn a_second_signal_ends_a_sidecar_at_once_and_without_an_error() {
    let stack = ForgedStack::with_flags(["--lame-duck", "600"]);
    let process = stack.sidecar.into_process();
    process.terminate();
    process.until_logged("SIGTERM received");
    process.terminate();
    let end = process.finished();
    end.says(0, "second signal");
    assert!(!end.stderr.contains("ERROR"), "{}", end.stderr);
}

#[test]
fn lesson_a4_on_sigterm_readiness_falls_first() {
    let stack = ForgedStack::with_flags(["--lame-duck", "30"]);
    stack.sidecar.process().terminate();
    wait::until("readiness to fall", || stack.sidecar.readiness() == 503);
    let found = stack.sidecar.bearing(&stack.token()).status("/list");
    assert_eq!(found, 200, "still accepting");

    let server = AuthServerPlan::new().flags(["--lame-duck", "30"]).ready();
    server.process().terminate();
    wait::until("readiness of the auth server to fall", || {
        admin_get(server.admin(), "/readyz").status() == 503
    });
    assert!(!server.login().is_empty(), "still accepting");
}

/// The requests of one client that keeps its connections for as long as it may.
#[derive(Debug, Default)]
struct Kept {
    responses: usize,
    sent_elsewhere: usize,
    lost: usize,
}

/// Sends requests without a pause until no connection is available any more.
fn keep_on(address: SocketAddr, method: &str, request: &[u8]) -> Kept {
    let mut kept = Kept::default();
    while let Ok(mut client) = RawClient::try_connect(address) {
        for nth in 0.. {
            client.send(request);
            match client.try_response(method) {
                Ok(response) => {
                    kept.responses += usize::from(response.status() == 200);
                    if response.header("Connection") == ["close"] {
                        kept.sent_elsewhere += 1;
                        break;
                    }
                }
                Err(_) => {
                    kept.lost += usize::from(nth > 0);
                    break;
                }
            }
        }
    }
    kept
}

#[test]
fn lesson_a4_no_request_on_a_kept_connection_is_lost_at_the_end() {
    let stack = ForgedStack::with_public(["--lame-duck", "2"]);
    let server = AuthServerPlan::new().flags(["--lame-duck", "2"]).ready();
    let (of_sidecar, of_server) = (stack.sidecar.address(), server.address());
    let orders = "GET /orders/public/x HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let login = credentials().to_string();
    let login = format!(
        "POST /auth{LOGIN} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{login}",
        login.len()
    );
    let keys = "GET /auth/.well-known/jwks.json HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let clients: Vec<_> = [
        (of_sidecar, "GET", &orders),
        (of_server, "POST", &login),
        (of_server, "GET", &keys),
    ]
    .into_iter()
    .cycle()
    .take(12)
    .map(|(address, method, request)| {
        let request = request.clone().into_bytes();
        thread::spawn(move || keep_on(address, method, &request))
    })
    .collect();
    wait::until("requests over kept connections", || {
        let logins = sum(server.admin(), "postern_auth_server_logins_total", &[]);
        logins > 0 && !stack.service.requests().is_empty()
    });
    for process in [stack.sidecar.process(), server.process()] {
        process.terminate();
    }
    for client in clients {
        let kept = client.join().expect("a client that ends");
        assert_eq!(kept.lost, 0, "{kept:?}");
        assert!(kept.responses > 0 && kept.sent_elsewhere > 0, "{kept:?}");
    }
    for process in [stack.sidecar.into_process(), server.into_process()] {
        assert_eq!(process.finished().code, Some(0));
    }
}

#[test]
fn a_request_that_a_stop_meets_on_its_way_has_its_response() {
    let stack = ForgedStack::with_public(["--lame-duck", "0"]);
    let server = AuthServerPlan::new().flags(["--lame-duck", "0"]).ready();
    let (sidecar, keys) = (&stack.sidecar, "/auth/.well-known/jwks.json");
    for (address, process, path) in [
        (sidecar.address(), sidecar.process(), "/orders/public/x"),
        (server.address(), server.process(), keys),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut kept = RawClient::connect(address);
        kept.send(request.as_bytes());
        assert_eq!(kept.response("GET").status(), 200);
        process.terminate();
        wait::until("no further connection", || {
            RawClient::try_connect(address).is_err()
        });
        kept.send(request.as_bytes());
        let response = kept.response("GET");
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.header("connection"), ["close"], "{path}");
    }
}

#[test]
fn a_handshake_that_a_stop_meets_is_finished() {
    let authority = Authority::new();
    let certificate = authority.issue_server(&["127.0.0.1"]);
    let server = AuthServerPlan::new()
        .flags(["--lame-duck", "0"])
        .tls(&authority, &certificate)
        .ready();
    let address = server.address();
    let socket = TcpStream::connect(address).unwrap();
    let handshake = authority.client().greet(socket).unwrap();
    server.process().terminate();
    wait::until("no further connection", || {
        RawClient::try_connect(address).is_err()
    });
    let mut client = handshake.finish().unwrap();
    client.send(b"GET /auth/.well-known/jwks.json HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response("GET").status(), 200);
}

#[test]
fn sighup_ends_no_auth_server() {
    let server = AuthServer::start().ready();
    let client = server.anonymous();
    let process = server.into_process();
    process.signal("HUP");
    for _ in 0..10 {
        assert_eq!(client.status("/static/nothing"), 404);
    }
}

#[test]
fn a_store_that_stalls_leaves_the_probes_responding() {
    // Accepts connections and never responds.
    let stalled = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("redis://{}", stalled.local_addr().unwrap());
    let server = AuthServerPlan::new().store(store).start();
    assert_eq!(admin_get(server.admin(), "/livez").status(), 200);
    assert_eq!(admin_get(server.admin(), "/readyz").status(), 503);
}

#[test]
fn a_request_in_flight_is_finished_before_the_process_ends() {
    let stack = ForgedStack::with_flags(["--lame-duck", "0"]);
    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(&stack.head("POST", "/orders/slow", "Content-Length: 4\r\n"));
    client.send(b"bo");
    // The request is in flight once its head is authorized. The access log of rejections cannot
    // show this; the counter of connections can.
    let token = stack.token();
    assert_eq!(stack.sidecar.bearing(&token).status("/list"), 200);
    stack.sidecar.process().terminate();
    wait::until("readiness to fall", || stack.sidecar.readiness() == 503);
    client.send(b"dy");
    assert_eq!(client.response("POST").status(), 200);
    assert_eq!(stack.service.last_request().body, b"body");
}

#[test]
fn the_drain_command_ends_when_nothing_is_in_flight() {
    let stack = ForgedStack::with_flags(["--lame-duck", "0"]);
    let drain = |timeout: &str| {
        let admin = stack.sidecar.admin().to_string();
        Program::Sidecar
            .command()
            .arguments(["drain", "--admin-listen", &admin, "--timeout", timeout])
            .run()
    };
    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(&stack.head("POST", "/orders/slow", "Content-Length: 4\r\n"));
    stack.sidecar.until_in_flight(1);

    let held_up = drain("1");
    held_up.says(69, "1 requests in flight");
    assert_eq!(stack.sidecar.readiness(), 503);
    let response = stack.sidecar.bearing(&stack.token()).get("/list");
    assert_eq!(response.status(), 200, "still accepting");
    assert_eq!(response.header("Connection"), ["close"], "go elsewhere");

    client.send(b"body");
    assert_eq!(client.response("POST").status(), 200);
    let drained = drain("30");
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
}

#[test]
fn a_web_page_cannot_drain_a_sidecar() {
    let stack = ForgedStack::start();
    for line in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"] {
        let admin = stack.sidecar.admin();
        let request = format!("POST /drain HTTP/1.1\r\nHost: {admin}\r\n{line}\r\n\r\n");
        let response = exchange(admin, "POST", request.as_bytes());
        assert_eq!(response.status(), 403, "{line}");
    }
    assert_eq!(stack.sidecar.readiness(), 200);
}

#[test]
fn the_drain_command_reports_a_missing_sidecar() {
    let server = AuthServerPlan::new().start();
    let admin = server.admin().to_string();
    let end = Program::Sidecar
        .command()
        .arguments(["drain", "--admin-listen", &admin])
        .run();
    end.says(69, "not the admin port of a sidecar");
}

#[test]
fn an_exposed_service_is_reported_and_can_cost_readiness() {
    let stack = ForgedStack::start();
    let plan = || {
        SidecarPlan::new(&stack.service, &stack.auth_server.url()).flags([
            "--signing-type=ecdsa",
            "--pod-ip",
            "127.0.0.1",
        ])
    };
    let sidecar = plan().ready();
    wait::until("the metric", || {
        sidecar.metric("postern_sidecar_upstream_exposed") == Some(1)
    });
    sidecar.until_logged("clients need no token");
    let strict = plan().flags(["--require-unexposed"]).start();
    strict.until_logged("clients need no token");
    assert_eq!(strict.readiness(), 503);
}

#[test]
fn a_late_service_is_probed_when_it_listens() {
    let stack = ForgedStack::start();
    for (address, is_exposed) in [("0.0.0.0", true), ("127.0.0.1", false)] {
        let service = free_address();
        let flags = ["--signing-type=ecdsa", "--pod-ip=127.0.0.2"];
        let upstream = format!("http://{service}");
        let sidecar = SidecarPlan::to(&upstream, &stack.auth_server.url())
            .flags(flags)
            .flags(["--require-unexposed"])
            .start();
        let says = |value: &str| {
            let line = format!("\npostern_sidecar_upstream_exposed {value}\n");
            admin_get(sidecar.admin(), "/metrics")
                .text()
                .contains(&line)
        };
        wait::until("the key", || {
            sidecar.metric("postern_sidecar_keys_available") == Some(1)
        });
        let report = admin_get(sidecar.admin(), "/readyz");
        assert_eq!(report.status(), 503, "{address}");
        has(report.text(), "not known while the service is down");
        assert!(says("-1"), "{address}: nothing is known yet");
        let _service = TcpListener::bind((address, service.port())).expect("a free port");
        let (value, status) = if is_exposed { ("1", 503) } else { ("0", 200) };
        wait::until("the result", || says(value));
        wait::until("the status", || sidecar.readiness() == status);
    }
}
