//! Placeholders in the data tables: `{{name}}` and `{{name:argument}}`, replaced by bytes.

/// Replaces every placeholder. `named` knows the table's own; the general ones are
/// `{{repeat:COUNT:TEXT}}` and `{{hex:BYTES}}`.
///
/// # Panics
/// When a placeholder is unknown or unfinished: a table with a typing error must not pass.
pub fn fill(template: &str, named: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut filled = Vec::new();
    let mut rest = template;
    while let Some((before, placeholder, after)) = next_placeholder(rest) {
        filled.extend_from_slice(before.as_bytes());
        let bytes = named(placeholder).or_else(|| general(placeholder));
        filled.extend(
            bytes.unwrap_or_else(|| {
                panic!("unknown placeholder {{{{{placeholder}}}}} in {template}")
            }),
        );
        rest = after;
    }
    assert!(!rest.contains("{{"), "unfinished placeholder in {template}");
    filled.extend_from_slice(rest.as_bytes());
    filled
}

/// `{{now}}`, `{{now+60}}`, `{{now-60}}`.
pub fn moment(placeholder: &str, now: i64) -> Option<Vec<u8>> {
    let shift = placeholder.strip_prefix("now")?;
    let shift: i64 = if shift.is_empty() {
        0
    } else {
        shift.parse().ok()?
    };
    Some((now + shift).to_string().into_bytes())
}

fn next_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (placeholder, after) = rest.split_once("}}")?;
    Some((before, placeholder, after))
}

fn general(placeholder: &str) -> Option<Vec<u8>> {
    let (kind, argument) = placeholder.split_once(':')?;
    match kind {
        "hex" => argument.as_bytes().chunks(2).map(hex_byte).collect(),
        "repeat" => {
            let (count, text) = argument.split_once(':')?;
            Some(text.repeat(count.parse().ok()?).into_bytes())
        }
        _ => None,
    }
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{fill, moment};

    #[test]
    fn placeholders_become_bytes_and_json_braces_stay() {
        let filled = fill(
            r#"{"a":{"exp":{{now-5}}}} {{hex:00ff}} {{repeat:3:ab}} {}"#,
            |name| moment(name, 100),
        );
        assert_eq!(filled, b"{\"a\":{\"exp\":95}} \x00\xff ababab {}");
    }
}
