//! Words for protocols: values of `appProtocol`, and names of ports. After a hyphen follows what
//! their authors like, as in `grpc-api`: the convention of Istio.

pub(crate) const HTTP: &str = "http";
pub(crate) const H2C: &str = "h2c";
pub(crate) const HTTPS: &str = "https";

/// The longer word first: the first that a name begins with counts.
const WORDS: [(&str, &str); 7] = [
    ("grpc-web", HTTP),
    ("grpc", H2C),
    ("h2c", H2C),
    ("http2", H2C),
    ("https", HTTPS),
    ("wss", HTTPS),
    ("http", HTTP),
];

/// Beginnings of the words after the protocol, in names of ports beside the service's.
const NOT_OF_SERVICES: [&str; 8] = [
    "admin", "debug", "health", "manage", "metric", "monitor", "probe", "prom",
];

/// Returns the protocol that a name or an `appProtocol` says.
pub(crate) fn protocol_of(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let word = word.strip_prefix("kubernetes.io/").unwrap_or(&word);
    for (known, protocol) in WORDS {
        if word == known || word.starts_with(&format!("{known}-")) {
            return Some(protocol);
        }
    }
    None
}

/// Returns true for a name by which a port may be the service's: it says a protocol, and not that
/// it is for metrics or the like (`http-metrics`).
pub(crate) fn may_be_of_service(name: &str) -> bool {
    protocol_of(name).is_some() && !name.split('-').any(is_beside_service)
}

fn is_beside_service(word: &str) -> bool {
    NOT_OF_SERVICES.iter().any(|known| word.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_the_first_word_of_a_name() {
        for (word, protocol, is_of_service) in [
            ("http", Some(HTTP), true),
            ("http-web", Some(HTTP), true),
            ("https-web", Some(HTTPS), true),
            ("HTTPS", Some(HTTPS), true),
            ("wss", Some(HTTPS), true),
            ("grpc-api", Some(H2C), true),
            ("grpc-web", Some(HTTP), true),
            ("grpc-web-api", Some(HTTP), true),
            ("http2-x", Some(H2C), true),
            ("h2c-x", Some(H2C), true),
            ("kubernetes.io/h2c", Some(H2C), true),
            ("http-metrics", Some(HTTP), false),
            ("http-envoy-prom", Some(HTTP), false),
            ("https-admin", Some(HTTPS), false),
            ("grpc-healthz", Some(H2C), false),
            ("web", None, false),
            ("httpd", None, false),
            ("web-https", None, false),
            ("grpcs", None, false),
            ("tls-web", None, false),
            ("", None, false),
        ] {
            let found = (protocol_of(word), may_be_of_service(word));
            assert_eq!(found, (protocol, is_of_service), "{word}");
        }
    }
}
