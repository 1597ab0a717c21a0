//! The sidecar of one pod: what is missing is added, everything else stays.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::annotations as names;
use crate::metadata::{contradiction, inherited, with_metadata};
use crate::object::Rejected;
use crate::object::{Object, PodView, list, name_of, text};
use crate::patch::{Operation, add_member, prepend};
use crate::ports::{self, Ports};
use crate::probes::{self, Rewritten};
use crate::settings::{
    self, APP_SECRET_FILE, AUTH_SERVER, PROBES, PUBLIC_PATH, Settings, UPSTREAM,
};

/// Labels that name an application, the usual one first.
const NAME_LABELS: [&str; 4] = ["app.kubernetes.io/name", "app", "k8s-app", "run"];
/// Kubernetes' default; the sidecar's whole stop fits into it.
const GRACE_PERIOD: u64 = 30;

/// Characters of a pass list in an error.
const MAX_LISTED: usize = 200;

/// A pod with its sidecar: the changes, and the ports that Services need.
#[derive(Debug)]
pub(crate) struct InjectedPod {
    pub(crate) operations: Vec<Operation>,
    pub(crate) ports: Ports,
    /// The operator reads them; none stops the injection.
    pub(crate) warnings: Vec<String>,
}

/// Puts the sidecar into the pod of a labelled object.
///
/// # Errors
/// The reason why the pod cannot have one.
pub(crate) fn with_sidecar(
    object: Object<'_>,
    pod: &PodView<'_>,
    settings: &Settings,
) -> Result<InjectedPod, Rejected> {
    let rejected = |reason: String| Rejected::new(object.described(), reason);
    if pod.containers().next().is_none() {
        return Err(rejected("has no containers".to_owned()));
    }
    if let Some(reason) = contradiction(object, pod) {
        return Err(rejected(reason));
    }
    if let Some(reason) = taken_name(pod).filter(|_| pod.sidecar().is_none()) {
        return Err(rejected(reason));
    }
    // What is on the workload is on its pods too: the webhook reads the pods alone.
    let inherited = inherited(object, pod);
    let with_all =
        with_metadata(pod, &inherited).ok_or_else(|| rejected("has no pod".to_owned()))?;
    let complete = Object::new(&with_all).pod();
    let complete = complete.ok_or_else(|| rejected("has no containers".to_owned()))?;
    let ports = Ports::of(&complete, &settings.component).map_err(rejected)?;
    let unknown = object.unknown_annotation();
    let unknown = unknown.or_else(|| Object::new(pod.value()).unknown_annotation());
    let warning = |name| format!("the annotation {name} means nothing");
    let mut result = InjectedPod {
        operations: inherited,
        ports,
        warnings: unknown.map(warning).into_iter().collect(),
    };
    if let Some(reason) = way_past(pod, ports) {
        return Err(rejected(reason));
    }
    if pod.sidecar().is_some() {
        return Ok(result);
    }
    let complete = complete.located_at(&pod.path);
    let added = Added {
        pod: &complete,
        ports,
        settings,
    };
    added.add(&mut result).map_err(rejected)?;
    Ok(result)
}

/// Returns the way by which the service of a pod is reached whatever its sidecar does.
fn way_past(pod: &PodView<'_>, ports: Ports) -> Option<String> {
    if pod.spec("hostNetwork") == Some(&Value::Bool(true)) {
        return Some("hostNetwork: the service is reached on the node's address".to_owned());
    }
    let is_windows = [pod.spec("os"), pod.spec("nodeSelector")]
        .into_iter()
        .flatten()
        .any(|choice| {
            let name = choice.get("name").or(choice.get("kubernetes.io/os"));
            name.and_then(Value::as_str) == Some("windows")
        });
    if is_windows {
        return Some("the sidecar does not run on Windows".to_owned());
    }
    ports::of_node(pod, ports.service)
        .map(|port| format!("hostPort {port}: the service is reached on the node's address"))
}

/// Returns the name of the sidecar's that a pod uses for something else.
fn taken_name(pod: &PodView<'_>) -> Option<String> {
    let mut all = pod.containers().chain(pod.init_containers());
    if all.any(|container| name_of(container) == "sidecar") {
        return Some("a container of its own is called sidecar".to_owned());
    }
    let taken = list(pod.spec("volumes")).find(|volume| name_of(volume).starts_with("postern-"));
    taken.map(|volume| format!("has a volume of its own called {}", name_of(volume)))
}

/// The additions to one pod.
struct Added<'a> {
    pod: &'a PodView<'a>,
    ports: Ports,
    settings: &'a Settings,
}

impl Added<'_> {
    fn add(&self, result: &mut InjectedPod) -> Result<(), String> {
        let probes = self.probes();
        let container = self.container(&probes)?;
        let path = &self.pod.path;
        let spec = format!("{path}/spec");
        let present = self.pod.spec("initContainers");
        let init = format!("{spec}/initContainers");
        result
            .operations
            .extend(prepend(present, &init, vec![container]));
        let (present, volumes) = (self.pod.spec("volumes"), format!("{spec}/volumes"));
        result
            .operations
            .extend(prepend(present, &volumes, self.volumes()));
        result.operations.extend(probes.operations);
        self.add_hook(result);
        Ok(())
    }

    /// Lets the service outlive the drain, where nothing else is set and there is time for it.
    fn add_hook(&self, result: &mut InjectedPod) {
        if self.pod.is_task() {
            return;
        }
        let grace = self.pod.spec("terminationGracePeriodSeconds");
        let grace = grace.and_then(Value::as_u64).unwrap_or(GRACE_PERIOD);
        let (number, container) = self.service();
        let lifecycle = container.get("lifecycle").filter(|hooks| !hooks.is_null());
        if lifecycle.is_some_and(|hooks| hooks.get("preStop").is_some()) {
            return;
        }
        if grace < GRACE_PERIOD {
            result.warnings.push(format!(
                "terminationGracePeriodSeconds {grace}: too short for the service to outlive the drain, so rollouts may lose requests"
            ));
            return;
        }
        let path = format!("{}/spec/containers/{number}/lifecycle", self.pod.path);
        let hook = self.settings.component.lifecycle.get("preStop").cloned();
        let hook = hook.unwrap_or_default();
        result
            .operations
            .push(add_member(lifecycle, &path, "preStop", hook));
    }

    /// Returns the container that declares the service's port, or else the first.
    fn service(&self) -> (usize, &Value) {
        let declares = |container: &Value| {
            ports::of_container(container).any(|(_, port)| port == self.ports.service)
        };
        let mut numbered = self.pod.containers().enumerate();
        let declaring = numbered.find(|(_, container)| declares(container));
        declaring
            .or_else(|| self.pod.containers().enumerate().next())
            .unwrap_or((0, &Value::Null))
    }

    fn config_map(&self) -> Option<&str> {
        self.pod.annotation(names::CONFIG_MAP)
    }

    /// A ConfigMap has the probes for itself.
    fn probes(&self) -> Rewritten {
        match self.config_map() {
            Some(_) => Rewritten::default(),
            None => probes::rewritten(self.pod, self.ports),
        }
    }

    /// A ConfigMap may name another source of the key than the settings: then annotations decide.
    fn needs_application(&self) -> bool {
        self.settings.variables.contains_key(AUTH_SERVER)
            || self.has_own_application(names::APP_ID)
            || self.has_own_application(names::SECRET)
    }

    fn needs_secret(&self) -> bool {
        self.settings.variables.contains_key(APP_SECRET_FILE)
            || self.has_own_application(names::SECRET)
    }

    fn has_own_application(&self, annotation: &str) -> bool {
        self.config_map().is_some() && self.pod.annotation(annotation).is_some()
    }

    fn container(&self, probes: &Rewritten) -> Result<Value, String> {
        let component = &self.settings.component;
        let mut container = component.container.clone();
        let usual = component.port("sidecar-admin");
        renumber(&mut container, usual, self.ports.admin);
        let Some(members) = container.as_object_mut() else {
            return Err("the component has no container".to_owned());
        };
        members.insert("image".to_owned(), self.settings.image.clone().into());
        match self.config_map() {
            Some(name) => {
                let source = json!([{"configMapRef": {"name": name}}]);
                members.insert("envFrom".to_owned(), source);
            }
            None => drop(members.remove("envFrom")),
        }
        if !self.needs_secret() {
            remove_named(members.get_mut("volumeMounts"), "postern-sidecar-secret");
        }
        let env = self.env(members.get("env"), probes)?;
        members.insert("env".to_owned(), env.into());
        Ok(container)
    }

    fn env(&self, of_component: Option<&Value>, probes: &Rewritten) -> Result<Vec<Value>, String> {
        let mut env = Vec::new();
        for variable in list(of_component) {
            match name_of(variable) {
                "POSTERN_APP_ID" if !self.needs_application() => {}
                "POSTERN_APP_ID" => env.push(self.app_id(variable)?),
                "POSTERN_ADMIN_LISTEN" => {
                    let address = format!("0.0.0.0:{}", self.ports.admin);
                    env.push(json!({"name": "POSTERN_ADMIN_LISTEN", "value": address}));
                }
                _ => env.push(variable.clone()),
            }
        }
        let pairs = self.variables(probes)?.into_iter();
        env.extend(pairs.map(|(name, value)| json!({"name": name, "value": value})));
        Ok(env)
    }

    /// Returns the application: named by an annotation, or by the first usual label of the pod.
    fn app_id(&self, of_component: &Value) -> Result<Value, String> {
        if let Some(id) = self.pod.annotation(names::APP_ID) {
            return Ok(json!({"name": "POSTERN_APP_ID", "value": id}));
        }
        let mut labels = NAME_LABELS.iter();
        match labels.find(|label| self.pod.label(label).is_some()) {
            Some(&"app.kubernetes.io/name") => Ok(of_component.clone()),
            Some(label) => {
                let path = format!("metadata.labels['{label}']");
                let from = json!({"fieldRef": {"fieldPath": path}});
                Ok(json!({"name": "POSTERN_APP_ID", "valueFrom": from}))
            }
            None => Err(format!(
                "its pods have no name: give them the label {} or the annotation {}",
                NAME_LABELS[0],
                names::APP_ID
            )),
        }
    }

    /// Returns the settings of this pod by variable.
    fn variables(&self, probes: &Rewritten) -> Result<Map<String, Value>, String> {
        let component = &self.settings.component;
        let mut variables = match self.config_map() {
            Some(_) => BTreeMap::new(),
            None => self.settings.variables.clone(),
        };
        let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
        if self.config_map().is_none() || self.pod.annotation(names::PORT).is_some() {
            set(UPSTREAM, format!("http://127.0.0.1:{}", self.ports.service));
        }
        if let Some(name) = self.pod.annotation(names::APP_NAME) {
            set("POSTERN_APP_NAME", name.to_owned());
        }
        if self.pod.is_task() {
            for (name, value) in &component.of_tasks {
                set(name, value.clone());
            }
        }
        if !probes.forwarded.is_empty() {
            let probes = serde_json::to_string(&probes.forwarded).unwrap_or_default();
            // Kubernetes would expand `$(NAME)`.
            set(PROBES, probes.replace('$', "$$"));
        }
        if let Some(list) = self.public_paths(variables.get(PUBLIC_PATH))? {
            variables.insert(PUBLIC_PATH.to_owned(), list);
        }
        let pairs = variables.into_iter();
        Ok(pairs.map(|(name, value)| (name, value.into())).collect())
    }

    /// Joins the operator's patterns and the annotation's.
    fn public_paths(&self, of_all: Option<&String>) -> Result<Option<String>, String> {
        let lists = [
            of_all.map(String::as_str),
            self.pod.annotation(names::PUBLIC_PATH),
        ];
        let given = lists.into_iter().flatten();
        let patterns: Vec<&str> = given.filter(|list| !list.is_empty()).collect();
        for list in &patterns {
            // Each by itself: an unfinished one would go on in the next.
            settings::pass_list(list).map_err(|problem| {
                let begin: String = list.chars().take(MAX_LISTED).collect();
                format!("the pass list '{begin}' {problem}")
            })?;
        }
        Ok((!patterns.is_empty()).then(|| patterns.join(",")))
    }

    fn volumes(&self) -> Vec<Value> {
        let secret = self.pod.annotation(names::SECRET);
        let secret = secret.or(self.settings.secret.as_deref());
        let volumes = self.settings.component.volumes.iter();
        volumes
            .filter(|volume| self.needs_secret() || volume.get("secret").is_none())
            .map(|volume| {
                let mut volume = volume.clone();
                if let (Some(name), Some(slot)) = (secret, volume.pointer_mut("/secret/secretName"))
                {
                    *slot = name.into();
                }
                volume
            })
            .collect()
    }
}

/// Replaces a port number throughout the container.
fn renumber(value: &mut Value, from: u16, to: u16) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let is_port = name == "port" || name == "containerPort";
                if is_port && member.as_u64() == Some(u64::from(from)) {
                    *member = to.into();
                } else {
                    renumber(member, from, to);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| renumber(item, from, to)),
        _ => {}
    }
}

fn remove_named(list: Option<&mut Value>, name: &str) {
    if let Some(items) = list.and_then(Value::as_array_mut) {
        items.retain(|item| text(item, "/name") != name);
    }
}
