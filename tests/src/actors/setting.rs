//! Sizes that a run of its own sets, such as `make bodies`.

/// Returns the number in this variable, or the usual one.
pub fn number(variable: &str, usually: usize) -> usize {
    let configured = std::env::var(variable).ok();
    configured
        .and_then(|text| text.parse().ok())
        .unwrap_or(usually)
}
