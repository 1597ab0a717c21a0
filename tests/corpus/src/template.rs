//! Placeholders in the data tables: `{{name}}` and `{{name:argument}}`, replaced by bytes.

/// Replaces every placeholder: `named` those of the table, and `{{repeat:COUNT:TEXT}}` and
/// `{{hex:BYTES}}` anywhere. An unknown one stays unchanged, so that the table's reader reports a
/// typing error.
pub fn fill(template: &str, named: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut filled = Vec::new();
    let mut rest = template;
    while let Some((before, placeholder, after)) = next_placeholder(rest) {
        filled.extend_from_slice(before.as_bytes());
        let bytes = named(placeholder).or_else(|| general(placeholder));
        filled.extend(bytes.unwrap_or_else(|| format!("{{{{{placeholder}}}}}").into_bytes()));
        rest = after;
    }
    filled.extend_from_slice(rest.as_bytes());
    filled
}

/// Returns true if a placeholder is left.
pub fn is_unfilled(filled: &[u8]) -> bool {
    filled.windows(2).any(|pair| pair == b"{{")
}

/// Returns the time of `{{now}}`, `{{now+60}}` or `{{now-60}}`.
pub fn moment(placeholder: &str, now: i64) -> Option<Vec<u8>> {
    number(placeholder, |name| (name == "now").then_some(now))
        .map(|number| number.to_string().into_bytes())
}

/// Returns the sum of numbers and names, such as `now-leeway+1`.
pub fn number(sum: &str, named: impl Fn(&str) -> Option<i64>) -> Option<i64> {
    if sum.is_empty() {
        return None;
    }
    let term = |term: &str| named(term).or_else(|| term.parse().ok());
    let mut terms = sum.split_inclusive(['+', '-']);
    let (mut total, mut sign) = (0, '+');
    terms.try_for_each(|part| {
        let value = term(part.trim_end_matches(['+', '-']))?;
        total += if sign == '-' { -value } else { value };
        sign = part.chars().next_back()?;
        Some(())
    })?;
    Some(total)
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
