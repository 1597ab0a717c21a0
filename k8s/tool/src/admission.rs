//! The review of one object at its admission: allowed, patched, or rejected with the reason.
//!
//! Pods get the sidecar; workloads get the label for their pods, so that what users apply hardly
//! changes; labelled Services lead to the sidecar.

use std::iter;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use runtime::named_enum;
use serde_json::{Value, json};

use crate::annotations::SIDECAR;
use crate::metadata::{follow, inherit, pin};
use crate::object::{Object, text};
use crate::original;
use crate::patch::difference;
use crate::pod::add_sidecar;
use crate::ports::Ports;
use crate::services::move_alone;
use crate::settings::Settings;

const API_VERSION: &str = "admission.k8s.io/v1";

/// A body that is no review.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an AdmissionReview of {API_VERSION}: {0}")]
pub(crate) struct NotAReview(&'static str);

impl NotAReview {
    pub(crate) const TOO_MANY_VALUES: Self = Self("has too many values");
}

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
/// [`NotAReview`] for a body of another form.
pub(crate) fn review(body: &[u8], settings: &Settings) -> Result<(Outcome, Value), NotAReview> {
    let review: Value = serde_json::from_slice(body).map_err(|_| NotAReview("is not JSON"))?;
    if text(&review, "/apiVersion") != API_VERSION || text(&review, "/kind") != "AdmissionReview" {
        return Err(NotAReview("is of another kind"));
    }
    let request = review.get("request").ok_or(NotAReview("has no request"))?;
    let uid = match text(request, "/uid") {
        "" => return Err(NotAReview("has no uid")),
        uid => uid,
    };
    let (outcome, response) = match changes(request, settings) {
        Ok((patch, warnings)) if patch.is_empty() => {
            let response = json!({"uid": uid, "allowed": true, "warnings": warnings});
            (Outcome::Allowed, response)
        }
        Ok((patch, warnings)) => {
            let patch = STANDARD.encode(Value::Array(patch).to_string());
            let response = json!({
                "uid": uid, "allowed": true, "warnings": warnings,
                "patchType": "JSONPatch", "patch": patch,
            });
            (Outcome::Patched, response)
        }
        Err(reason) => {
            let object = request.get("object").unwrap_or(&Value::Null);
            let message = format!("postern: {}: {reason}", Object::new(object).described());
            let status = json!({"code": 403, "reason": "Forbidden", "message": message});
            let response = json!({"uid": uid, "allowed": false, "status": status});
            (Outcome::Rejected, response)
        }
    };
    let review =
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response});
    Ok((outcome, review))
}

/// Returns the patch, and warnings for the user.
fn changes(request: &Value, settings: &Settings) -> Result<(Vec<Value>, Vec<String>), String> {
    let Some(before) = request.get("object").filter(|object| object.is_object()) else {
        return Ok((Vec::new(), Vec::new()));
    };
    let mut after = before.clone();
    let warnings = change(&mut after, request, settings)?;
    Ok((difference(before, &after), warnings))
}

/// Changes an object as its kind needs it, and returns warnings.
fn change(object: &mut Value, request: &Value, settings: &Settings) -> Result<Vec<String>, String> {
    let operation = text(request, "/operation");
    // Ephemeral containers, scales and the like: the pod has or lacks its sidecar already.
    if !text(request, "/subResource").is_empty() || !matches!(operation, "CREATE" | "UPDATE") {
        return Ok(Vec::new());
    }
    let view = Object::new(object);
    // At a CREATE the member is the author's, and would let a pod in as it is.
    if operation == "UPDATE" && view.is_ending() {
        return Ok(Vec::new());
    }
    view.check()?;
    match view.kind() {
        "Service" if view.label(SIDECAR) == Some("true") => move_alone(object).map(|_| Vec::new()),
        "Service" => Ok(original::take_away(object).unwrap_or_default()),
        // Their pods cannot change any more.
        "Pod" | "Job" if operation == "UPDATE" => Ok(Vec::new()),
        // Its controller would put back what is changed here.
        kind if kind != "Pod" && view.has_controller() => Ok(Vec::new()),
        _ if view.pod().is_none() || !view.wants_sidecar() => Ok(Vec::new()),
        "Pod" => add_sidecar(object, settings, iter::empty()),
        _ => {
            let edited = follow(object);
            if !Object::new(object).wants_sidecar() {
                return Ok(edited);
            }
            // The whole pod, so that a rejection reaches the user who applies the workload.
            let mut whole = object.clone();
            let warnings = add_sidecar(&mut whole, settings, iter::empty())?;
            // A container that others add to the pods later may have a port too.
            let ports = Object::new(&whole).pod().map(Ports::of);
            let port = ports.and_then(|ports| ports.ok()?.service);
            inherit(object)?;
            port.map_or(Ok(()), |port| pin(object, port))?;
            Ok(warnings)
        }
    }
}
