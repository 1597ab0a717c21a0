//! Injection into a stream of manifests: labelled workloads get the sidecar, and the Services that
//! select their pods lead to it.

use serde_json::Value;

use crate::object::Rejected;
use crate::object::{Object, PodView, objects, share_namespace};
use crate::patch::{self, Operation};
use crate::pod::{InjectedPod, with_sidecar};
use crate::ports::Ports;
use crate::services;
use crate::settings::Settings;
use crate::yaml::{Document, YamlError, documents, edited};

/// The stream with sidecars.
#[derive(Debug)]
pub(crate) struct Injected {
    pub(crate) text: String,
    /// For the operator; none stops the injection.
    pub(crate) warnings: Vec<String>,
}

/// The reason why nothing is printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InjectError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// The pods of one workload.
struct Pods<'v> {
    object: Object<'v>,
    view: PodView<'v>,
    /// `None` without a sidecar.
    ports: Option<Ports>,
}

/// Puts the sidecar into every labelled workload of a stream. What has one already stays as it is.
///
/// # Errors
/// For text that is not YAML, and for the first object that would look protected and not be.
pub(crate) fn inject(stream: &str, settings: &Settings) -> Result<Injected, InjectError> {
    let documents = documents(stream)?;
    let mut stream = Stream::new(&documents);
    let ports = stream.inject_pods(settings)?;
    stream.move_services(&ports)?;
    let mut text = String::new();
    for (document, operations) in documents.iter().zip(&stream.operations) {
        text.push_str(&edited(document, operations)?);
    }
    let warnings = stream.warnings;
    Ok(Injected { text, warnings })
}

struct Stream {
    values: Vec<Value>,
    /// The changes of each document.
    operations: Vec<Vec<Operation>>,
    warnings: Vec<String>,
}

/// The ports of each object with a pod, by document and pointer.
type FoundPorts = Vec<((usize, String), Option<Ports>)>;

impl Stream {
    fn new(documents: &[Document]) -> Self {
        Self {
            values: documents.iter().map(Document::value).collect(),
            operations: vec![Vec::new(); documents.len()],
            warnings: Vec::new(),
        }
    }

    fn inject_pods(&mut self, settings: &Settings) -> Result<FoundPorts, Rejected> {
        let mut found = Vec::new();
        for (number, value) in self.values.iter().enumerate() {
            for (pointer, object) in objects(value) {
                object.check_label()?;
                if let Some(reason) = object.pods_elsewhere() {
                    return Err(Rejected::new(object.described(), reason));
                }
                let Some(pod) = object.pod() else {
                    continue;
                };
                if !object.wants_sidecar() {
                    found.push(((number, pointer), None));
                    continue;
                }
                let InjectedPod {
                    operations,
                    ports,
                    warnings,
                } = with_sidecar(object, &pod, settings)?;
                let described = object.described();
                let warnings = warnings.into_iter();
                self.warnings
                    .extend(warnings.map(|warning| format!("{described}: {warning}")));
                if let Some(of_document) = self.operations.get_mut(number) {
                    of_document.extend(below(&pointer, operations));
                }
                found.push(((number, pointer), Some(ports)));
            }
        }
        Ok(found)
    }

    fn move_services(&mut self, ports: &FoundPorts) -> Result<(), Rejected> {
        let after: Vec<Value> = self
            .values
            .iter()
            .zip(&self.operations)
            .map(|(value, operations)| patch::apply(value, operations).unwrap_or_default())
            .collect();
        let pods = pods(&after, ports);
        for (number, value) in after.iter().enumerate() {
            for (pointer, service) in objects(value) {
                if service.kind() != "Service" {
                    continue;
                }
                let moved = self.moved(service, &pods)?;
                if let Some(of_document) = self.operations.get_mut(number) {
                    of_document.extend(below(&pointer, moved));
                }
            }
        }
        Ok(())
    }

    /// Returns the changes of one Service.
    fn moved(
        &mut self,
        service: Object<'_>,
        pods: &[Pods<'_>],
    ) -> Result<Vec<Operation>, Rejected> {
        let selected = pods.iter().filter(|pods| {
            share_namespace(pods.object, service)
                && services::selects(service, pods.object, &pods.view)
        });
        let selected: Vec<&Pods<'_>> = selected.collect();
        let with_sidecar = selected.iter().find_map(|pods| Some((*pods, pods.ports?)));
        let Some((first, ports)) = with_sidecar else {
            if service.wants_sidecar() {
                let described = service.described();
                self.warnings.push(format!(
                    "{described}: selects no pods of this input: not changed"
                ));
            }
            return Ok(Vec::new());
        };
        let is_other = |pods: &&&Pods<'_>| pods.ports.is_none_or(|other| other != ports);
        if !services::is_exempt(service) && selected.iter().any(|pods| is_other(&pods)) {
            return Err(Rejected::new(
                service.described(),
                "selects pods with and without a sidecar, or with different ports",
            ));
        }
        services::moved(service, &first.view, ports)
    }
}

fn pods<'v>(after: &'v [Value], ports: &FoundPorts) -> Vec<Pods<'v>> {
    ports
        .iter()
        .filter_map(|((number, pointer), ports)| {
            let object = Object::new(after.get(*number)?.pointer(pointer)?);
            Some(Pods {
                object,
                view: object.pod()?,
                ports: *ports,
            })
        })
        .collect()
}

/// Puts changes below the place of their object in a list.
fn below(pointer: &str, operations: Vec<Operation>) -> impl Iterator<Item = Operation> {
    let pointer = pointer.to_owned();
    operations
        .into_iter()
        .map(move |operation| operation.below(&pointer))
}
