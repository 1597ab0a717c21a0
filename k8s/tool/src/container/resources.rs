//! CPU and memory of a sidecar and of its pod, and the number of requests and connections they allow.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::manifest::names;
use crate::manifest::object::Object;

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
/// The memory of the process and its token cache (docs/limits.md).
const OF_PROCESS: f64 = 30.0 * MIB;
/// The memory of four requests and five connections that clients do not read, rounded up; the second
/// number is for HTTP/2 to the service.
const PER_NINE: [f64; 2] = [4.5 * MIB, 6.625 * MIB];
/// The least memory of a sidecar; with less, hardly a request has room.
const LEAST: f64 = 64.0 * MIB;

/// Requests and connections at a time.
pub(crate) type Bounds = [u64; 2];

/// Sets the resources of a container by the operator's settings and the annotations of its pod, which
/// count more; an empty value removes a resource. Returns the bounds that its memory is enough for.
///
/// # Errors
/// The reason, with the name of the annotation.
pub(crate) fn set(
    container: &mut Value,
    pod: Object<'_>,
    defaults: &BTreeMap<String, String>,
    is_http_1: bool,
) -> Result<Option<Bounds>, String> {
    for (annotation, kind, what) in MEMBERS {
        let default = defaults.get(annotation).map(String::as_str);
        let Some(text) = pod.annotation(annotation).or(default) else {
            continue;
        };
        if !text.is_empty() {
            quantity(text).map_err(|why| format!("the annotation {annotation}: {why}"))?;
            container["resources"][kind][what] = text.into();
        // An empty value takes the component's or the operator's away.
        } else if let Some(members) = container["resources"][kind].as_object_mut() {
            members.remove(what);
        }
    }
    let resources = &container["resources"];
    for what in ["cpu", "memory"] {
        // The API server rejects such a container, with a text that names no annotation.
        if let Some(request) = amount(resources, "requests", what)
            && let Some(limit) = amount(resources, "limits", what)
            && request > limit
        {
            return Err(format!(
                "its sidecar would request more {what} than its limit: set the {what}-request too"
            ));
        }
    }
    let pod_limit = amount(pod.spec("resources"), "limits", "memory");
    // Without a limit of its own the sidecar may take the memory of the whole pod.
    match amount(resources, "limits", "memory").or(pod_limit) {
        Some(memory) if memory < LEAST => {
            Err("its sidecar needs a memory-limit of 64Mi at least".to_owned())
        }
        memory => Ok(memory.map(|memory| bounds(memory, is_http_1))),
    }
}

/// Returns the changes that add the sidecar's resources to the resources of the whole pod, if it has any:
/// the API server rejects a pod whose containers request more, or have a higher limit, than the pod.
pub(crate) fn whole_pod_changes(pod: Object<'_>, sidecar: &Value) -> Vec<(String, Value)> {
    let (whole, own) = (pod.spec("resources"), &sidecar["resources"]);
    let mut changes = Vec::new();
    for what in ["cpu", "memory"] {
        let limit = amount(whole, "limits", what);
        let own_limit = amount(own, "limits", what);
        // The API server takes a limit for a missing request, too.
        let own_request = amount(own, "requests", what).or(own_limit);
        let request = match amount(whole, "requests", what) {
            // For a missing request of the pod the API server takes the sum of its containers', if they have
            // any, else the limit.
            None if !is_requested(pod, what) => limit,
            request => request,
        };
        for (kind, present, more) in [
            ("requests", request, own_request),
            ("limits", limit, own_limit.or(own_request)),
        ] {
            if let (Some(present), Some(more)) = (present, more) {
                let path = format!("/spec/resources/{kind}/{what}");
                changes.push((path, written(what, present + more).into()));
            }
        }
    }
    changes
}

fn is_requested(pod: Object<'_>, what: &str) -> bool {
    for container in pod.containers().chain(pod.init_containers()) {
        let resources = &container["resources"];
        let request = amount(resources, "requests", what);
        if request.or(amount(resources, "limits", what)).is_some() {
            return true;
        }
    }
    false
}

/// Returns the number of a resource; `None` where the resource is missing, or no quantity.
fn amount(resources: &Value, kind: &str, what: &str) -> Option<f64> {
    match &resources[kind][what] {
        Value::String(text) => quantity(text).ok(),
        number => number.as_f64(),
    }
}

/// Writes a sum as the API server does, rounded up: the pod's sum is never below its containers' sum.
fn written(what: &str, sum: f64) -> String {
    let (number, step, [unit, larger]) = match what {
        // Subtract the error of the addition of fractions, so that it does not round up.
        "cpu" => ((sum * 1000.0 - 1e-6).ceil(), 1000.0, ["m", ""]),
        _ => ((sum / MIB).ceil(), 1024.0, ["Mi", "Gi"]),
    };
    match number % step {
        0.0 => format!("{}{larger}", number / step),
        _ => format!("{number}{unit}"),
    }
}

/// Returns the number of a quantity, as Kubernetes reads it.
///
/// # Errors
/// For a text that is no quantity.
pub(crate) fn quantity(text: &str) -> Result<f64, String> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    match (text[..text.len() - unit.len()].parse::<f64>(), factor(unit)) {
        (Ok(number), Some(factor)) if (number * factor).is_finite() => Ok(number * factor),
        _ => Err(format!("{text:?} is no quantity such as 100m, 0.5 or 64Mi")),
    }
}

fn factor(unit: &str) -> Option<f64> {
    if let Some(index) = DECIMAL.iter().position(|known| *known == unit) {
        return Some(1000_f64.powi(i32::try_from(index).ok()? - 3));
    }
    if let Some(index) = BINARY.iter().position(|known| *known == unit) {
        return Some(1024_f64.powi(i32::try_from(index).ok()?));
    }
    // Try an exponent after the units: `E` alone is exa, `E3` an exponent.
    Some(10_f64.powi(unit.strip_prefix(['e', 'E'])?.parse().ok()?))
}

fn bounds(memory: f64, is_http_1: bool) -> Bounds {
    let [http_1, http_2] = PER_NINE;
    let per_nine = if is_http_1 { http_1 } else { http_2 };
    // The difference is positive: the caller has rejected memory below `LEAST`.
    let times = u64::from(((memory - OF_PROCESS) / per_nine) as u32);
    [4 * times, 5 * times]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_resources_of_a_pod_hold_the_sidecar_s() {
        for row in ROWS.trim().lines() {
            let (given, expected) = row.split_once(" => ").unwrap();
            let mut given = given.split(" + ").map(serde_json::from_str::<Value>);
            let [whole, container, own] = [(); 3].map(|()| given.next().unwrap().unwrap());
            let pod =
                json!({"spec": {"resources": whole, "containers": [{"resources": container}]}});
            let changes = whole_pod_changes(Object(&pod), &json!({"resources": own}));
            let found = changes.iter().map(|(path, value)| {
                let path = path.trim_start_matches("/spec/resources/");
                format!("{path} {}", value.as_str().unwrap())
            });
            assert_eq!(found.collect::<Vec<_>>().join(", "), expected, "{row}");
        }
    }

    /// Rows: the resources of a pod, of its container and of the sidecar, and those that change.
    const ROWS: &str = r#"
{} + {} + {"requests": {"cpu": "10m"}} => 
{"requests": {}, "limits": null} + {} + {"requests": {"cpu": "10m"}} => 
"x" + {} + {"requests": {"cpu": "10m"}} => 
{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}} + {} + {} => 
{"requests": {"hugepages-2Mi": "2Mi"}} + {} + {"requests": {"cpu": "10m"}} => 
{"requests": {"cpu": "1 core", "memory": "1Mi"}} + {} + {"requests": {"cpu": "10m", "memory": "24Mi"}} => requests/memory 25Mi
{"requests": {"cpu": "100m"}} + {} + {"requests": {"cpu": "10m"}} => requests/cpu 110m
{"requests": {"cpu": "0.1"}} + {} + {"requests": {"cpu": "10m"}} => requests/cpu 110m
{"requests": {"cpu": 0.7}} + {} + {"requests": {"cpu": "10m"}} => requests/cpu 710m
{"requests": {"cpu": "990m"}} + {} + {"requests": {"cpu": "10m"}} => requests/cpu 1
{"requests": {"memory": "1000Mi"}} + {} + {"requests": {"memory": "24Mi"}} => requests/memory 1Gi
{"requests": {"cpu": "100100u"}} + {} + {"requests": {"cpu": "10m"}} => requests/cpu 111m
{"requests": {"memory": "1Gi"}} + {} + {"requests": {"memory": "24Mi"}} => requests/memory 1048Mi
{"requests": {"memory": "1G"}} + {} + {"requests": {"memory": "24Mi"}} => requests/memory 978Mi
{"requests": {"memory": 1024}} + {} + {"requests": {"memory": "0.1Ki"}} => requests/memory 1Mi
{"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}} + {} + {"requests": {"memory": "24Mi"}, "limits": {"memory": "256Mi"}} => requests/memory 88Mi, limits/memory 384Mi
{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}} + {} + {"requests": {"cpu": "10m"}} => requests/cpu 1010m, limits/cpu 1010m
{"requests": {"cpu": "1"}} + {} + {"limits": {"cpu": "0.1"}} => requests/cpu 1100m
{"limits": {"cpu": "1"}} + {} + {"requests": {"cpu": "10m"}} => requests/cpu 1010m, limits/cpu 1010m
{"limits": {"cpu": "1"}} + {"requests": {"cpu": "1m"}} + {"requests": {"cpu": "10m"}} => limits/cpu 1010m
{"limits": {"cpu": 1}} + {"limits": {"cpu": "0.5"}} + {"requests": {"cpu": "10m"}} => limits/cpu 1010m"#;
}
