//! The limits of connections and of requests in flight, by the file descriptors.

/// An idle connection takes some 30 kB. A client that does not read takes up to 0.25 MiB for its
/// connection and 0.75 MiB for each request in flight, 1.25 MiB if the service speaks HTTP/2.
const MAX_BY_DEFAULT: usize = 16_384;

/// Returns the number of idle connections to the service: 128, as in Pingora's pool, or a quarter of
/// few descriptors.
pub(crate) fn max_idle(descriptors: usize) -> usize {
    (descriptors / 4).min(128)
}

/// Returns the `configured` number, by default one for every two file descriptors without those of
/// idle connections to the service: half of them are for clients, half for requests.
pub(crate) fn max_of(flag: &str, configured: Option<usize>, descriptors: usize) -> usize {
    let enough_for = (descriptors - max_idle(descriptors)) / 2;
    let max = configured.unwrap_or(enough_for.min(MAX_BY_DEFAULT));
    if max > enough_for {
        tracing::warn!(
            "{flag} {max}: the limit of open files ({descriptors}) suffices for {enough_for}"
        );
    }
    max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_two_file_descriptors() {
        for (descriptors, connections) in [(32, 12), (928, 400), (usize::MAX, 16_384)] {
            assert_eq!(max_of("--max", None, descriptors), connections);
            assert_eq!(max_of("--max", Some(1), descriptors), 1);
        }
    }
}
