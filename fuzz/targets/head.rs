//! Heads of requests of HTTP/1.x: the sidecar reads the same however the bytes arrive, and a body that
//! it takes for harmless is no request to another parser, nor is a rest of it.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use postern_http::framing::body::BodyReader;
use postern_http::framing::unread::may_be_request;
use postern_http::request::received;

const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

fn is_read_as_it_arrives(data: &[u8]) {
    let mut received = BytesMut::from(data);
    let Ok(Some(head)) = received::take(&mut received) else {
        return;
    };
    assert_eq!([&head.raw[..], &received[..]].concat(), data);
    for end in [head.raw.len() - 1, head.raw.len() / 2, 1] {
        let begin = received::take(&mut BytesMut::from(&data[..end]));
        assert!(matches!(begin, Ok(None)), "{end}");
    }
    assert_eq!(head.fields().count(), head.headers.len());
    let checked = head.checked_target();
    if let (Ok(_), Ok(body)) = (&checked, postern_http::framing::check(&head.raw)) {
        assert_eq!(head.body, BodyReader::new(body));
    }
}

fn is_no_request(body: &[u8]) {
    if may_be_request(body) {
        return;
    }
    // The first byte says how much of it a service has read.
    let read = body.first().map_or(0, |first| usize::from(*first));
    for rest in [Some(body), body.get(read..)].into_iter().flatten() {
        let stream = [rest, NEXT].concat();
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut fields);
        if request
            .parse(&stream)
            .is_ok_and(|parsed| parsed.is_complete())
        {
            assert_eq!(request.path, Some("/next"));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    is_read_as_it_arrives(data);
    is_no_request(data);
});
