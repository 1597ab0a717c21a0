//! The review of one object at its admission: allowed, patched, or rejected with the reason.
//!
//! Pods get the sidecar; workloads get the label for their pods, so that what users apply hardly
//! changes; labelled Services lead to the sidecar.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::annotations::SIDECAR;
use crate::metadata::{inherited, renewed};
use crate::object::Rejected;
use crate::object::{Object, text};
use crate::patch::{self, Operation};
use crate::pod::with_sidecar;
use crate::services::moved_alone;
use crate::settings::Settings;

const API_VERSION: &str = "admission.k8s.io/v1";

/// A body that is no review.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an AdmissionReview of {API_VERSION}: {0}")]
pub(crate) struct NotAReview(&'static str);

impl NotAReview {
    pub(crate) const TOO_MANY_VALUES: Self = Self("has too many values");
}

/// The end of a review, as the metrics have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing had to change.
    Allowed,
    /// The object is allowed with changes.
    Patched,
    /// The object is not allowed.
    Rejected,
}

/// A response, with its outcome.
#[derive(Debug)]
pub(crate) struct Reviewed {
    pub(crate) response: Value,
    pub(crate) outcome: Outcome,
    /// The rejected object and the reason.
    pub(crate) rejected: Option<Rejected>,
}

/// Reviews one object.
///
/// # Errors
/// [`NotAReview`] for a body of another form.
pub(crate) fn review(body: &[u8], settings: &Settings) -> Result<Reviewed, NotAReview> {
    let review: Value = serde_json::from_slice(body).map_err(|_| NotAReview("is not JSON"))?;
    if text(&review, "/apiVersion") != API_VERSION || text(&review, "/kind") != "AdmissionReview" {
        return Err(NotAReview("is of another kind"));
    }
    let request = review.get("request").ok_or(NotAReview("has no request"))?;
    let uid = match text(request, "/uid") {
        "" => return Err(NotAReview("has no uid")),
        uid => uid,
    };
    let reviewed = changes(request, settings);
    let (outcome, mut response, rejected) = match reviewed {
        Ok(changes) if changes.operations.is_empty() => {
            let warnings = changes.warnings;
            (Outcome::Allowed, allowed(warnings), None)
        }
        Ok(changes) => {
            let patch = serde_json::to_vec(&changes.operations)
                .map_err(|_| NotAReview("cannot be patched"))?;
            let mut response = allowed(changes.warnings);
            if let Some(members) = response.as_object_mut() {
                members.insert("patchType".to_owned(), "JSONPatch".into());
                members.insert("patch".to_owned(), STANDARD.encode(patch).into());
            }
            (Outcome::Patched, response, None)
        }
        Err(rejected) => {
            let message = format!("postern: {rejected}");
            let status = json!({"code": 403, "reason": "Forbidden", "message": message});
            let response = json!({"allowed": false, "status": status});
            (Outcome::Rejected, response, Some(rejected))
        }
    };
    if let Some(members) = response.as_object_mut() {
        members.insert("uid".to_owned(), uid.into());
    }
    let response =
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response});
    Ok(Reviewed {
        response,
        outcome,
        rejected,
    })
}

fn allowed(warnings: Vec<String>) -> Value {
    if warnings.is_empty() {
        json!({"allowed": true})
    } else {
        json!({"allowed": true, "warnings": warnings})
    }
}

#[derive(Debug, Default)]
struct Changes {
    operations: Vec<Operation>,
    warnings: Vec<String>,
}

fn changes(request: &Value, settings: &Settings) -> Result<Changes, Rejected> {
    let none = Ok(Changes::default());
    let operation = text(request, "/operation");
    let Some(object) = request.get("object").filter(|object| object.is_object()) else {
        return none;
    };
    // Ephemeral containers, scales and the like: the pod has or lacks its sidecar already.
    if !text(request, "/subResource").is_empty() || !matches!(operation, "CREATE" | "UPDATE") {
        return none;
    }
    let object = Object::new(object);
    // At a CREATE the member is the author's, and would let a pod in as it is.
    if operation == "UPDATE" && object.is_ending() {
        return none;
    }
    object.check_label()?;
    match object.kind() {
        "Service" if object.label(SIDECAR) == Some("true") => Ok(Changes {
            operations: moved_alone(object, &settings.component)?,
            warnings: Vec::new(),
        }),
        "Service" => none,
        // Their pods cannot change any more.
        "Pod" | "Job" if operation == "UPDATE" => none,
        // Its controller would put back what is changed here.
        kind if kind != "Pod" && object.has_controller() => none,
        _ => {
            let before = request.get("oldObject").filter(|before| before.is_object());
            workload(object, before.map(Object::new), settings)
        }
    }
}

fn workload(
    object: Object<'_>,
    before: Option<Object<'_>>,
    settings: &Settings,
) -> Result<Changes, Rejected> {
    let Some(pod) = object.pod().filter(|_| object.wants_sidecar()) else {
        return Ok(Changes::default());
    };
    let mut operations = before.map_or_else(Vec::new, |before| renewed(object, &pod, before));
    let value = patch::apply(object.value(), &operations)
        .ok_or_else(|| Rejected::new(object.described(), "has no annotations"))?;
    let object = Object::new(&value);
    let pod = object
        .pod()
        .ok_or_else(|| Rejected::new(object.described(), "has no pod"))?;
    // For a workload too, so that a rejection reaches the user who applies it.
    let injected = with_sidecar(object, &pod, settings)?;
    operations.extend(match object.kind() {
        "Pod" => injected.operations,
        _ => inherited(object, &pod),
    });
    Ok(Changes {
        operations,
        warnings: injected.warnings,
    })
}
