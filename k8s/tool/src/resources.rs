//! CPU and memory of a sidecar, and how much it takes on with them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::annotations as names;
use crate::object::Object;

/// Annotations, and the members of a container that they set.
pub(crate) const MEMBERS: [(&str, &str, &str); 4] = [
    (names::CPU_REQUEST, "requests", "cpu"),
    (names::CPU_LIMIT, "limits", "cpu"),
    (names::MEMORY_REQUEST, "requests", "memory"),
    (names::MEMORY_LIMIT, "limits", "memory"),
];

/// Units of quantities: powers of 1000, from the third below 1 on, and of 1024.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const MIB: f64 = 1024.0 * 1024.0;
/// The process and its token cache (docs/limits.md).
const OF_PROCESS: f64 = 30.0 * MIB;
/// Four requests and five connections that clients do not read, rounded up; the second is for HTTP/2
/// to the service.
const OF_NINE: [f64; 2] = [4.5 * MIB, 6.625 * MIB];
/// Below it hardly a request has room.
const LEAST: f64 = 64.0 * MIB;

/// Requests and connections at a time.
pub(crate) type Bounds = [u64; 2];

/// Sets the resources of a container by the operator's settings and the annotations of its pod,
/// which count more; an empty one takes away. Returns what its memory is enough for.
///
/// # Errors
/// The reason, with the name of the annotation.
pub(crate) fn set(
    container: &mut Value,
    pod: Object<'_>,
    of_all: &BTreeMap<String, String>,
    is_http_1: bool,
) -> Result<Option<Bounds>, String> {
    for (annotation, kind, what) in MEMBERS {
        let of_all = of_all.get(annotation).map(String::as_str);
        let Some(text) = pod.annotation(annotation).or(of_all) else {
            continue;
        };
        if !text.is_empty() {
            quantity(text).map_err(|why| format!("the annotation {annotation}: {why}"))?;
            container["resources"][kind][what] = text.into();
        } else if let Some(members) = container["resources"][kind].as_object_mut() {
            members.remove(what);
        }
    }
    let resources = &container["resources"];
    let value = |kind: &str, what: &str| quantity(resources[kind][what].as_str()?).ok();
    for what in ["cpu", "memory"] {
        if let (Some(request), Some(limit)) = (value("requests", what), value("limits", what))
            && request > limit
        {
            return Err(format!(
                "its sidecar would request more {what} than its limit: set the {what}-request too"
            ));
        }
    }
    match value("limits", "memory") {
        Some(memory) if memory < LEAST => {
            Err("its sidecar needs a memory-limit of 64Mi at least".to_owned())
        }
        memory => Ok(memory.map(|memory| bounds(memory, is_http_1))),
    }
}

/// Returns the number that a quantity says, as Kubernetes reads it.
///
/// # Errors
/// For what is no quantity.
pub(crate) fn quantity(text: &str) -> Result<f64, String> {
    let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';
    let unit = text.trim_start_matches(is_digit);
    let number: Option<f64> = text
        .strip_suffix(unit)
        .and_then(|number| number.parse().ok());
    let quantity = number
        .zip(factor(unit))
        .map(|(number, factor)| number * factor);
    quantity
        .filter(|quantity| quantity.is_finite())
        .ok_or_else(|| format!("{text:?} is no quantity such as 100m, 0.5 or 64Mi"))
}

fn factor(unit: &str) -> Option<f64> {
    let index = |units: &[&str]| units.iter().position(|known| *known == unit);
    let power = |index: usize| i32::try_from(index).ok();
    if let Some(power) = index(&DECIMAL).and_then(power) {
        return Some(1000_f64.powi(power - 3));
    }
    if let Some(power) = index(&BINARY).and_then(power) {
        return Some(1024_f64.powi(power));
    }
    let exponent = unit.strip_prefix(['e', 'E'])?;
    Some(10_f64.powi(exponent.parse().ok()?))
}

fn bounds(memory: f64, is_http_1: bool) -> Bounds {
    let [http_1, http_2] = OF_NINE;
    let of_nine = if is_http_1 { http_1 } else { http_2 };
    let times = u64::from(((memory - OF_PROCESS) / of_nine) as u32);
    [4 * times, 5 * times]
}
