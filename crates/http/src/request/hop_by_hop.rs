//! Fields of one connection, which a proxy does not pass on (RFC 9110 §7.6.1): the list for requests
//! and responses of every version.

use smallvec::SmallVec;

/// The fields of a connection of HTTP/1.1, which HTTP/2 does not have (RFC 9113 §8.2.2).
const OF_A_CONNECTION: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];
/// Further ones of a request: for the proxy that gets it.
const OF_A_REQUEST: [&str; 5] = [
    "http2-settings",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
];

/// The fields of one message that are not forwarded.
pub struct HopByHop<'h> {
    /// Names beside those of a connection.
    further: &'static [&'static str],
    /// The names in `Connection`.
    nominated: SmallVec<[&'h [u8]; 4]>,
}

impl<'h> HopByHop<'h> {
    /// Returns those of a request with these members of `Connection`. One that the service needs is
    /// set anew.
    pub fn in_request(nominated: impl Iterator<Item = &'h [u8]>) -> Self {
        Self {
            further: &OF_A_REQUEST,
            nominated: nominated.collect(),
        }
    }

    /// Returns those of a response, to which `Trailer` belongs where its trailers do not pass.
    pub fn in_response(nominated: impl Iterator<Item = &'h [u8]>, passes_trailers: bool) -> Self {
        Self {
            further: if passes_trailers { &[] } else { &["trailer"] },
            nominated: nominated.collect(),
        }
    }

    /// Returns true for the name of such a field, in any case of its letters.
    pub fn contains(&self, name: &str) -> bool {
        let mut nominated = self.nominated.iter();
        is_of_a_connection(name)
            || is_among(self.further, name)
            || nominated.any(|one| one.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Returns true for a field that HTTP/2 does not have.
pub(super) fn is_of_a_connection(name: &str) -> bool {
    is_among(&OF_A_CONNECTION, name)
}

fn is_among(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of the lists, one that `Connection` names, and one of the message.
    const FIELDS: &str = "Connection Keep-Alive Proxy-Connection Transfer-Encoding Upgrade \
        HTTP2-Settings Proxy-Authenticate Proxy-Authorization TE Trailer X-Hop X-End";

    #[test]
    fn each_recipient_gets_the_fields_that_are_no_others() {
        let nominated = || [&b"close"[..], b"x-hop"].into_iter();
        let of_response = |passes_trailers| HopByHop::in_response(nominated(), passes_trailers);
        let of_requests = "HTTP2-Settings Proxy-Authenticate Proxy-Authorization TE";
        for (hop_by_hop, passed) in [
            (HopByHop::in_request(nominated()), "X-End"),
            (of_response(false), &format!("{of_requests} X-End")),
            (of_response(true), &format!("{of_requests} Trailer X-End")),
        ] {
            let fields = FIELDS.split_whitespace();
            let left: Vec<_> = fields.filter(|name| !hop_by_hop.contains(name)).collect();
            assert_eq!(left.join(" "), passed);
        }
    }
}
