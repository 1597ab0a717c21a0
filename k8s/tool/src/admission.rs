//! The review of one object at its admission: allowed, patched, or rejected with the reason.
//!
//! Pods get the sidecar; workloads get the label for their pods, so that what users apply hardly
//! changes; labelled Services lead to the sidecar.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postern_process::named_enum;
use serde_json::{Value, json};

use crate::container::settings::Settings;
use crate::inject::change_workload;
use crate::manifest::metadata::inherit;
use crate::manifest::names;
use crate::manifest::object::{Object, text};
use crate::manifest::original;
use crate::network::services::move_alone;
use crate::network::{ports, protocol};
use crate::yaml::cut;

const API_VERSION: &str = "admission.k8s.io/v1";
/// Max number of JSON values in the body of one review: far more than the largest workload has. Each value
/// takes up to 1 KiB of memory.
const MAX_VALUES: usize = 50_000;

named_enum! {
    /// The end of a review, as the metrics have it.
    pub(crate) enum Outcome {
        /// Nothing had to change.
        Allowed = "allowed",
        /// The object is allowed with changes.
        Patched = "patched",
        /// The object is not allowed.
        Rejected = "rejected",
        /// The request is no review.
        Malformed = "malformed",
    }
}

/// Reviews one object, and returns the response with its outcome.
///
/// # Errors
/// The reason why a body is no review.
pub(crate) fn review(body: &[u8], settings: &Settings) -> Result<(Outcome, Value), &'static str> {
    // Count before parsing: parsed values take many times the memory of their bytes.
    if has_too_many_values(body) {
        return Err("an AdmissionReview with too many values");
    }
    let review: Value = serde_json::from_slice(body).map_err(|_| "not JSON")?;
    if text(&review, "/apiVersion") != API_VERSION || text(&review, "/kind") != "AdmissionReview" {
        return Err("not an AdmissionReview of admission.k8s.io/v1");
    }
    // The response has to repeat the uid, so a review without it has no response.
    let uid = text(&review, "/request/uid");
    if uid.is_empty() {
        return Err("an AdmissionReview without a request, or its uid");
    }
    let mut response = json!({"uid": uid, "allowed": true});
    let outcome = match changes(&review["request"], settings) {
        Ok(Changes { patch, warnings }) => {
            response["warnings"] = warnings.into();
            if patch.is_empty() {
                Outcome::Allowed
            } else {
                response["patchType"] = "JSONPatch".into();
                response["patch"] = STANDARD.encode(Value::Array(patch).to_string()).into();
                Outcome::Patched
            }
        }
        Err(reason) => {
            let object = Object(&review["request"]["object"]).described();
            let message = cut(&format!("postern: {object}: {reason}"));
            response["allowed"] = false.into();
            response["status"] = json!({"code": 403, "reason": "Forbidden", "message": message});
            Outcome::Rejected
        }
    };
    let review =
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response});
    Ok((outcome, review))
}

/// Returns true for a text of JSON with more values than a manifest has.
fn has_too_many_values(body: &[u8]) -> bool {
    let (mut is_text, mut is_escaped) = (false, false);
    let mut values = 0;
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b':' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
        if values > MAX_VALUES {
            return true;
        }
    }
    false
}

/// The changes of one object.
#[derive(Default)]
struct Changes {
    patch: Vec<Value>,
    /// For the user who applies the object.
    warnings: Vec<String>,
}

fn changes(request: &Value, settings: &Settings) -> Result<Changes, String> {
    let before = &request["object"];
    let operation = text(request, "/operation");
    // Ephemeral containers, scales and the like: the pod has or lacks its sidecar already.
    let is_of_object = text(request, "/subResource").is_empty() && before.is_object();
    if !is_of_object || !matches!(operation, "CREATE" | "UPDATE") {
        return Ok(Changes::default());
    }
    let mut after = before.clone();
    let warnings = change(&mut after, operation, settings)?;
    let mut patch = Vec::new();
    for member in ["metadata", "spec"] {
        if before[member] != after[member] {
            let path = format!("/{member}");
            // In JSON Patch `add` replaces a member that is there.
            patch.push(json!({"op": "add", "path": path, "value": after[member]}));
        }
    }
    Ok(Changes { patch, warnings })
}

/// Changes an object as its kind needs it, and returns warnings.
fn change(object: &mut Value, operation: &str, settings: &Settings) -> Result<Vec<String>, String> {
    let view = Object(object);
    view.check()?;
    match view.kind() {
        "Service" if view.label(names::SIDECAR) == Some("true") => {
            let warning = protocol::warning(view);
            if move_alone(object)? {
                Ok(Vec::from_iter(warning))
            } else {
                Ok(Vec::new())
            }
        }
        "Service" => Ok(original::take_away(object).unwrap_or_default()),
        // The pods of a present Pod or Job cannot change any more.
        "Pod" | "Job" if operation == "UPDATE" => Ok(Vec::new()),
        kind => {
            let has_template = kind != "Pod" && view.wants_sidecar();
            let mut whole = object.clone();
            let warnings = change_workload(&mut whole, &[], settings)?;
            // The pods get the sidecar at their own review. Here the change of the workload only
            // finds the reason of a rejection, which reaches the user who applies it.
            match ports::protected_port(Object(&whole)) {
                // Record the port that was found: a container that another webhook adds may have a port.
                Some((_, port)) if has_template => inherit(object, port)?,
                _ => *object = whole,
            }
            Ok(warnings)
        }
    }
}
