//! Discovery of an auth server by its SRV records (RFC 2782), from a real name server.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;
use tests::clock;
use tests::dns_server::{DnsServer, Service, Zone};
use tests::echo_service::EchoService;
use tests::fake_auth_server::FakeAuthServer;
use tests::keys::SigningType;
use tests::redis_server::free_address;
use tests::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::token_forge::Forge;
use tests::wait;

use super::key_refresh::ECDSA;

const BY_SRV: &str = "dns+srv://_auth._tcp.internal/auth";

fn services(found: &[(u16, u16, SocketAddr)]) -> Zone {
    let services = found.iter().map(|(priority, weight, address)| Service {
        priority: *priority,
        weight: *weight,
        address: *address,
    });
    Zone::Services(services.collect())
}

fn plan(service: &EchoService, name_server: &DnsServer) -> SidecarPlan {
    SidecarPlan::new(service, BY_SRV)
        .flags(ECDSA)
        .flags(EVERY_SECOND)
        .flags(["--dns-server", &name_server.address()])
}

fn sidecar(service: &EchoService, name_server: &DnsServer) -> Sidecar {
    plan(service, name_server).start().ready()
}

fn auth_server(forge: &Forge) -> FakeAuthServer {
    FakeAuthServer::serving(&forge.trusted().served())
}

/// Waits for `more` further fetches from the servers, and returns their numbers.
fn fetches(servers: &[&FakeAuthServer], more: usize) -> Vec<usize> {
    let counts = || -> Vec<usize> {
        let retrievals = servers.iter().map(|server| server.retrievals().len());
        retrievals.collect()
    };
    let before = counts();
    wait::until("more fetches", || {
        let now = counts();
        let grown: Vec<_> = now
            .iter()
            .zip(&before)
            .map(|(now, before)| now - before)
            .collect();
        (grown.iter().sum::<usize>() >= more).then_some(grown)
    })
}

#[test]
fn srv_records_give_host_and_port_by_priority() {
    let forge = Forge::new(SigningType::Ecdsa);
    let (one, other, spare) = (
        auth_server(&forge),
        auth_server(&forge),
        auth_server(&forge),
    );
    let name_server = DnsServer::start(services(&[
        (20, 9, spare.address()),
        (10, 1, one.address()),
        (10, 1, other.address()),
    ]));
    let service = EchoService::start();
    let sidecar = sidecar(&service, &name_server);
    let token = forge.token(clock::now(), &Value::Null);
    assert_eq!(sidecar.bearing(&token).get("/list").status(), 200);
    wait::until("both to be asked", || {
        (!one.retrievals().is_empty() && !other.retrievals().is_empty()).then_some(())
    });
    assert_eq!(spare.retrievals().len(), 0, "the first priority responds");
    let hosts: BTreeSet<_> = one.retrievals()[0].header("host").into_iter().collect();
    let expected = format!("internal:{}", one.address().port());
    assert_eq!(hosts, BTreeSet::from([expected]));
}

#[test]
fn an_instance_without_weight_beside_one_with_is_hardly_chosen() {
    let forge = Forge::new(SigningType::Ecdsa);
    let (heavy, light) = (auth_server(&forge), auth_server(&forge));
    let name_server = DnsServer::start(services(&[
        (0, 0, light.address()),
        (0, 65535, heavy.address()),
    ]));
    let service = EchoService::start();
    let _sidecar = sidecar(&service, &name_server);
    assert_eq!(fetches(&[&heavy, &light], 4)[1], 0);
}

#[test]
fn an_absent_instance_yields_to_the_next_priority() {
    let forge = Forge::new(SigningType::Ecdsa);
    let spare = auth_server(&forge);
    let (gone, also_gone) = (free_address(), free_address());
    let name_server = DnsServer::start(services(&[
        (0, 1, gone),
        (0, 1, also_gone),
        (1, 1, spare.address()),
    ]));
    let service = EchoService::start();
    let sidecar = sidecar(&service, &name_server);
    let log = sidecar.process().stderr();
    let (before_success, _) = log.split_once("verification key fetched").unwrap();
    let failures = |log: &str| log.matches("key not fetched").count();
    assert_eq!(failures(before_success), 2, "each once, no retries: {log}");
    for address in [gone, also_gone] {
        assert!(
            before_success.contains(&address.port().to_string()),
            "{log}"
        );
    }
    // After five fetches, four of them from the spare, the sidecar retries the first server.
    wait::until("a third failure", || {
        (failures(&sidecar.process().stderr()) > 2).then_some(())
    });
    assert!(spare.retrievals().len() >= 4);
}

#[test]
fn a_failing_name_server_leaves_the_last_good_key() {
    let forge = Forge::new(SigningType::Ecdsa);
    let (one, other) = (auth_server(&forge), auth_server(&forge));
    let name_server = DnsServer::start(services(&[(0, 0, one.address())]));
    let service = EchoService::start();
    let sidecar = sidecar(&service, &name_server);
    let token = forge.token(clock::now(), &Value::Null);
    for (zone, why) in [
        (Zone::Failing, "lookup of _auth._tcp.internal failed"),
        (services(&[]), "_auth._tcp.internal"),
    ] {
        name_server.set_zone(zone);
        let seen = || {
            sidecar
                .process()
                .stderr()
                .matches("key not fetched")
                .count()
        };
        let before = seen();
        wait::until("two failures", || (seen() >= before + 2).then_some(()));
        let log = sidecar.process().stderr();
        assert!(log.contains(why), "{log}");
        assert_eq!(sidecar.bearing(&token).get("/list").status(), 200);
        assert_eq!(sidecar.readiness(), 200);
    }
    name_server.set_zone(services(&[(0, 0, other.address())]));
    fetches(&[&other], 1);
    assert!(name_server.questions() > 0);
}

#[test]
fn addresses_are_resolved_at_the_given_name_server_too() {
    let forge = Forge::new(SigningType::Ecdsa);
    let auth_server = auth_server(&forge);
    let address = auth_server.address();
    let name_server = DnsServer::start(services(&[(0, 0, address)]));
    let service = EchoService::start();
    let url = format!("dns://auth.internal:{}/auth", address.port());
    let _sidecar = SidecarPlan::new(&service, &url)
        .flags(ECDSA)
        .flags(["--dns-server", &name_server.address()])
        .start()
        .ready();
    let host = auth_server.retrievals()[0].header("host");
    assert_eq!(host, [format!("auth.internal:{}", address.port())]);
}
