//! Requests of several clients on one connection to the service, which one of them abuses.

use super::*;

fn goes_on(mut call: OpenStream<'_>) {
    assert_eq!(call.read().unwrap().unwrap(), "first");
    call.write(b"second").unwrap();
    assert_eq!(call.read().unwrap().unwrap(), "second");
}

/// Netty and others end a whole connection for one block of fields that is too long.
#[test]
fn long_fields_of_one_client_end_no_other_s_call() {
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let other = H2Client::connect(stack.sidecar.address());
    let call = chat(&other, &bearer(&stack), "first");

    let client = H2Client::connect(stack.sidecar.address());
    let (long, longer) = ("~".repeat(9 * 1024), "~".repeat(40 * 1024));
    let target = format!("/orders/public/x?{longer}");
    for (path, value, expected) in [
        ("/orders/public/x", &*long, "200"),
        ("/orders/public/x", &*longer, "502 upstream_unavailable"),
        (&*target, "", "200"),
    ] {
        let request = client.request("GET", path, &[("x", value)]);
        assert_eq!(client.send(request, b"").unwrap().verdict(), expected);
    }
    assert!(service.connections() >= 4, "one for each long head");

    let mut client = FrameClient::connect(stack.sidecar.address());
    client.head(1, &fields_of("POST", "/orders/public/x"), false);
    client.frame(0, 0, 1, b"x");
    client.head(1, &[("x", &"~".repeat(12 * 1024))], true);
    client.fate(1);
    goes_on(call);
}

#[test]
fn calls_that_one_client_cancels_end_no_other_s_call() {
    const CANCELLED: usize = 250;
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let other = H2Client::connect(stack.sidecar.address());
    let call = chat(&other, &bearer(&stack), "first");

    let client = H2Client::connect(stack.sidecar.address());
    let fields = [("content-type", "application/grpc")];
    for cancelled in (10..=CANCELLED).step_by(10) {
        let open = |_| {
            let mut open = client.open(client.request("POST", "/orders/public/x", &fields));
            open.head().unwrap();
            open
        };
        drop((0..10).map(open).collect::<Vec<_>>());
        wait::until("the service to lose its calls", || {
            service.cut_off() >= cancelled
        });
    }
    goes_on(call);
}
