//! `--log-format json`: a collector that merges both streams reads only JSON, from the first byte.

use serde_json::Value;
use tests::actors::auth_server::AuthServerPlan;
use tests::actors::process::{Finished, Process};
use tests::actors::programs::Program;
use tests::actors::stack::ForgedStack;

use crate::e2e::configuration::command_line::SIDECAR;

const JSON: [&str; 2] = ["--log-format", "json"];

/// Parses every line of both streams.
fn lines(end: &Finished) -> Vec<Value> {
    let text = end.stdout.clone() + &end.stderr;
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn ended(process: Process) -> Finished {
    process.terminate();
    process.finished()
}

#[test]
fn both_streams_hold_json_alone_and_the_addresses_are_fields() {
    let server = AuthServerPlan::new()
        .flags(JSON)
        .flags(["--lame-duck", "0"])
        .environment("POSTERN_TOKEN_LIFETYME", "60")
        .ready();
    let (address, admin) = (server.address(), server.admin());
    let auth_server = (ended(server.into_process()), address, admin);
    let stack = ForgedStack::with(|plan| {
        let plan = plan.flags(JSON).flags(["--lame-duck", "0"]);
        plan.environment("POSTERN_TOKEN_LIFETYME", "60")
    });
    let (address, admin) = (stack.sidecar.address(), stack.sidecar.admin());
    let sidecar = (ended(stack.sidecar.into_process()), address, admin);
    for (end, address, admin) in [auth_server, sidecar] {
        let lines = lines(&end);
        for (message, address) in [("listening", address), ("admin listening", admin)] {
            let announced = lines.iter().filter(|line| line["message"] == message);
            let announced: Vec<_> = announced.map(|line| &line["address"]).collect();
            assert_eq!(announced, [&Value::from(address.to_string())]);
        }
        assert!(end.stderr.contains("POSTERN_TOKEN_LIFETYME"));
    }
}

#[test]
fn the_line_with_the_reason_of_an_end_is_json_too() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flags = [&SIDECAR[..], &JSON, &["--listen", &address]].concat();
    let end = Program::Sidecar.run(&flags);
    assert_eq!(end.code, Some(69));
    let lines = lines(&end);
    let last = lines.last().unwrap();
    let found = (&last["level"], &last["exit_code"]);
    assert_eq!(found, (&"ERROR".into(), &69.into()));
    let why = last["message"].as_str().unwrap();
    assert!(
        why.starts_with(&format!("--listen: cannot listen on {address}")),
        "{why}"
    );
}
