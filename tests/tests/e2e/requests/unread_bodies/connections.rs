//! Bodies that a service leaves, on connections that others use.

use super::*;

const LEFT_BODY: &str = "postern_sidecar_upstream_left_body";

const OF_CLIENT: [&str; 2] = ["--public-path", "/**"];

/// Returns status and body of a response without a token; the body is the method that was read.
fn send(client: &mut RawClient, method: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head =
        format!("{method} /orders/x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send(format!("{head}{body}").as_bytes());
    let response = client.response(method);
    (response.status(), response.text())
}

#[test]
fn an_unread_body_spoils_no_request_of_another_client() {
    let stack = ForgedStack::start();
    for misread in [
        Misread::Closes,
        Misread::Rejects,
        Misread::Leaves,
        Misread::TakesAnyMethod,
    ] {
        let service = CarelessService::start(misread);
        let sidecar = stack.in_front_of(&service.url(), &OF_CLIENT);
        // One that takes any method gives no sign, and would be trusted after some dozens.
        for round in 0..50 {
            let mut clients = [(); 2].map(|()| RawClient::connect(sidecar.address()));
            send(&mut clients[0], "POST", "{\"a\":1}");
            let (status, read) = send(&mut clients[1], "PUT", "");
            assert_eq!((status, &*read), (200, "PUT"), "{misread:?} {round}");
            send(&mut clients[0], "GET", "");
        }
    }
}

#[test]
fn a_request_spoiled_by_an_unread_body_is_sent_again() {
    let stack = ForgedStack::start();
    for (misread, next) in [
        (Misread::Closes, "GET"),
        (Misread::Rejects, "GET"),
        (Misread::Closes, "PUT"),
    ] {
        let service = CarelessService::start(misread);
        let sidecar = stack.in_front_of(&service.url(), &OF_CLIENT);
        let mut client = RawClient::connect(sidecar.address());
        assert_eq!(send(&mut client, "POST", "{\"a\":1}").0, 200);
        let (status, _) = send(&mut client, next, "{\"b\":2}");
        assert_eq!(status, 200, "{misread:?} {next}");
        sidecar.until_logged("its connections end after bodies method=POST path=/orders/x");
        assert_eq!(metrics::value(sidecar.admin(), LEFT_BODY), Some(1));
        // From then on nothing follows a body.
        for _ in 0..3 {
            assert_eq!(send(&mut client, "POST", "{\"c\":3}").0, 200);
        }
        let heads = service.heads();
        let closing = heads
            .iter()
            .filter(|head| head.contains("onnection: close"));
        assert!(closing.count() >= 3, "{misread:?} {next}: {heads:?}");
    }
}

/// Reads a head, and sends its first line; `None` at the end of the connection.
fn next_head(
    reader: &mut BufReader<TcpStream>,
    lines: &Sender<String>,
) -> std::io::Result<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let _ = lines.send(head.lines().next().unwrap_or_default().to_owned());
    Ok(Some(head))
}

/// Serves one connection: 200 to a POST, 400 behind it, and a part of a response to any other request.
fn respond_in_part(connection: TcpStream, lines: &Sender<String>) -> std::io::Result<()> {
    let mut writer = connection.try_clone()?;
    let mut reader = BufReader::new(connection);
    let mut is_behind_body = false;
    loop {
        let Some(head) = next_head(&mut reader, lines)? else {
            return Ok(());
        };
        if head.starts_with("POST") {
            reader.read_exact(&mut [0; 2])?;
            writer.write_all(&response("200 OK", &[&format!("{MARK}: 1")], b""))?;
            is_behind_body = true;
        } else if is_behind_body {
            writer.write_all(&response("400 Bad Request", &[], b""))?;
        } else {
            return writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        }
    }
}

#[test]
fn after_a_misread_request_a_cut_response_is_the_last() {
    let (sender, lines) = channel();
    let address = serve_each(move |_, connection| respond_in_part(connection, &sender));
    let stack = ForgedStack::start();
    let sidecar = stack.in_front_of(&format!("http://{address}"), &OF_CLIENT);
    let mut client = RawClient::connect(sidecar.address());
    assert_eq!(send(&mut client, "POST", "{}").0, 200);
    client.send(b"GET /orders/x HTTP/1.1\r\nHost: a\r\n\r\n");
    let received = client.text_until("half");
    assert!(received.starts_with("HTTP/1.1 200 OK\r\n"), "{received}");
    assert!(client.try_response("GET").is_err(), "a second response");
    // The POST, the GET that was misread, and the one whose response broke off.
    assert_eq!(lines.try_iter().count(), 3);
}

/// A 400 to a POST may have another cause, and is not sent again.
#[test]
fn a_service_in_doubt_spoils_one_post_and_no_other() {
    let stack = ForgedStack::start();
    for (misread, spoiled) in [
        (Misread::Closes, 400),
        (Misread::Rejects, 400),
        (Misread::Leaves, 502),
    ] {
        let service = CarelessService::start(misread);
        let sidecar = stack.in_front_of(&service.url(), &OF_CLIENT);
        let mut client = RawClient::connect(sidecar.address());
        let mut statuses = Vec::new();
        for _ in 0..6 {
            statuses.push(send(&mut client, "POST", "{\"a\":1}").0);
            if statuses.len() == 2 {
                // The holder of the connection behind the first body has left.
                client = RawClient::connect(sidecar.address());
            }
        }
        assert_eq!(statuses, [200, spoiled, 200, 200, 200, 200], "{misread:?}");
        assert_eq!(metrics::value(sidecar.admin(), LEFT_BODY), Some(0));
    }
}

#[test]
fn behind_a_body_a_connection_is_its_holder_s_alone() {
    let service = SocketServer::start(|request| {
        if request.target().ends_with(b"/silent") {
            return Reply::Silence;
        }
        let status = match request.target().ends_with(b"/x") {
            true => "200 OK",
            false => "400 Bad Request",
        };
        Reply::Bytes(response(status, &[&format!("{MARK}: 1")], b""))
    });
    let stack = ForgedStack::start();
    let sidecar = stack.in_front_of(&format!("http://{}", service.address()), &OF_CLIENT);
    let mut client = RawClient::connect(sidecar.address());
    // Beyond the rest of any connection.
    let rest = || std::thread::sleep(Duration::from_millis(250));
    let made_by = |client: &mut RawClient, method: &str, body: &str| {
        rest();
        let (before, _) = service.connections();
        assert_eq!(send(client, method, body).0, 200);
        service.connections().0 - before
    };
    let mut other = RawClient::connect(sidecar.address());
    assert_eq!(made_by(&mut client, "POST", "{}"), 1);
    assert_eq!(made_by(&mut other, "GET", ""), 1);
    assert_eq!(made_by(&mut client, "POST", "{}"), 0);
    assert_eq!(made_by(&mut client, "GET", ""), 0);
    assert_eq!(made_by(&mut other, "POST", "{}"), 0);
    assert_eq!(made_by(&mut other, "POST", "{}"), 0);
    let third = &mut RawClient::connect(sidecar.address());
    assert_eq!(made_by(third, "GET", ""), 0, "of the first client");
    // Clients that leave say nothing of bodies.
    for _ in 0..3 {
        assert_eq!(send(&mut client, "POST", "{}").0, 200);
        client.send(b"GET /orders/silent HTTP/1.1\r\nHost: a\r\n\r\n");
        wait::until("the request at the service", || {
            let requests = service.requests();
            requests
                .last()?
                .target()
                .ends_with(b"/silent")
                .then_some(())
        });
        client = RawClient::connect(sidecar.address());
    }
    // A response that a new connection gets as well says nothing of bodies.
    client.send(b"GET /orders/other HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response("GET").status(), 400);
    assert_eq!(metrics::value(sidecar.admin(), LEFT_BODY), Some(0));
}

/// Serves one connection: 405 to a PUT once more than the first 64 KiB of its body have come.
fn reject_late(connection: TcpStream, lines: &Sender<String>) -> std::io::Result<()> {
    let mut writer = connection.try_clone()?;
    let mut reader = BufReader::new(connection);
    loop {
        let Some(head) = next_head(&mut reader, lines)? else {
            return Ok(());
        };
        let (status, read) = match head.starts_with("PUT") {
            true => ("405 Method Not Allowed", 70_000),
            false => ("200 OK", 2),
        };
        reader.read_exact(&mut vec![0; read])?;
        writer.write_all(&response(status, &[&format!("{MARK}: 1")], b""))?;
        if read > 2 {
            std::io::copy(&mut reader, &mut std::io::sink())?;
        }
    }
}

/// The rest of a request that was sent in part would be a request of its own.
#[test]
fn a_long_body_that_is_rejected_early_is_never_sent_again() {
    let (sender, lines) = channel();
    let address = serve_each(move |_, connection| reject_late(connection, &sender));
    let stack = ForgedStack::start();
    let sidecar = stack.in_front_of(&format!("http://{address}"), &OF_CLIENT);
    let mut client = RawClient::connect(sidecar.address());
    assert_eq!(send(&mut client, "POST", "{}").0, 200);
    let held = vec![b'x'; 64 * 1024];
    let smuggled = b"GET /orders/smuggled HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000);
    let length = held.len() + smuggled.len();
    let head = format!("PUT /orders/x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send(&[head.as_bytes(), &held].concat());
    let (post, put) = (lines.recv().unwrap(), lines.recv().unwrap());
    assert!(
        post.starts_with("POST ") && put.starts_with("PUT "),
        "{post} {put}"
    );
    client.send(&smuggled);
    assert_eq!(client.response("PUT").status(), 405);
    drop((client, sidecar));
    assert_eq!(lines.try_iter().next(), None, "a request of the body");
}
