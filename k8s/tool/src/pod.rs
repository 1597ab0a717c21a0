//! The sidecar of one pod: what is missing is added, everything else stays.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde_json::{Map, Value, json};
use wire::settings;

use crate::annotations as names;
use crate::metadata::inherit;
use crate::object::{Object, list, name_of};
use crate::original;
use crate::ports::{self, Ports};
use crate::resources::{self, Bounds};
use crate::settings::{
    ADMIN_LISTEN, APP_ID, APP_NAME, APP_SECRET_FILE, AUTH_SERVER, BOUNDS, PROBES, PUBLIC_PATH,
    Settings, UPSTREAM,
};
use crate::{probes, protocol};

/// Labels that name an application, the usual one first.
const NAME_LABELS: [&str; 4] = ["app.kubernetes.io/name", "app", "k8s-app", "run"];
/// Members of the container that hold the admin port.
const ADMIN_PORTS: [&str; 4] = [
    "/ports/1/containerPort",
    "/startupProbe/httpGet/port",
    "/readinessProbe/httpGet/port",
    "/livenessProbe/httpGet/port",
];
/// Kubernetes' default; the sidecar's whole stop fits into it.
const GRACE_PERIOD: u64 = 30;

/// Characters of an error about an annotation.
const MAX_LINE: usize = 400;
/// Linux starts no program with a variable of 128 KiB, and the operator's patterns join a pod's.
const MAX_VARIABLE_BYTES: usize = 96 * 1024;

/// Puts the sidecar into the pod of a labelled object, and returns warnings. A pod that has one stays
/// as it is. Services of the input that select the pod say which protocol it speaks.
///
/// # Errors
/// The reason why the pod cannot have one; the object is then of no use.
pub(crate) fn add_sidecar<'v>(
    value: &mut Value,
    settings: &Settings,
    input: impl Iterator<Item = Object<'v>>,
) -> Result<Vec<String>, String> {
    check(Object::new(value))?;
    // What is on the workload is on its pods too: the webhook reads the pods alone.
    inherit(value)?;
    let object = Object::new(value);
    let (Some(path), Some(pod)) = (object.pod_path(), object.pod()) else {
        return Err("has no containers".to_owned());
    };
    let ports = Ports::of(pod)?;
    if let Some(reason) = way_past(pod, ports) {
        return Err(reason);
    }
    let unknown = object.unknown_annotation().or(pod.unknown_annotation());
    let warning = |name| format!("the annotation {name} means nothing");
    let mut warnings: Vec<String> = unknown.map(warning).into_iter().collect();
    if pod.sidecar().is_some() {
        return Ok(warnings);
    }
    let protocol = match ports.service {
        Some(port) => protocol::of_service(object, pod, port, input)?,
        None => protocol::HTTP,
    };
    // A ConfigMap has the probes for itself.
    let keeps_probes = pod.annotation(names::CONFIG_MAP).is_some() || own_probes(pod)?;
    let (probes, mut changes) = match keeps_probes {
        true => Default::default(),
        false => probes::redirected(pod, ports, &mut warnings),
    };
    if let Some(number) = hook(pod, ports, &mut warnings) {
        let path = format!("/spec/containers/{number}/lifecycle/preStop");
        changes.push((path, settings.component.hook.clone()));
    }
    let is_own =
        |name| pod.annotation(names::CONFIG_MAP).is_some() && pod.annotation(name).is_some();
    let variables = &settings.variables;
    let needs_secret = variables.contains_key(APP_SECRET_FILE) || is_own(names::SECRET);
    let sidecar = Sidecar {
        pod,
        ports,
        protocol,
        settings,
        needs_secret,
        needs_application: variables.contains_key(AUTH_SERVER)
            || is_own(names::APP_ID)
            || is_own(names::SECRET),
    };
    let (container, volumes) = (sidecar.container(&probes)?, sidecar.volumes());
    let pod = value.pointer_mut(path).ok_or("has no containers")?;
    let put = original::change(pod, changes)
        .and_then(|()| prepend(pod, "initContainers", vec![container]))
        .and_then(|()| prepend(pod, "volumes", volumes));
    put.map_err(|why| format!("{path}{why}"))?;
    Ok(warnings)
}

/// Returns true for a pod whose probes are left alone.
fn own_probes(pod: Object<'_>) -> Result<bool, String> {
    match pod.annotation(names::PROBES) {
        None => Ok(false),
        Some("own") => Ok(true),
        Some(other) => Err(format!(
            "the annotation {} is {other:?}, not \"own\"",
            names::PROBES
        )),
    }
}

/// Rejects an object whose pod has no place for a sidecar.
fn check(object: Object<'_>) -> Result<(), String> {
    let pod = object.pod().filter(|pod| pod.containers().next().is_some());
    let pod = pod.ok_or("has no containers")?;
    match taken_name(pod).filter(|_| pod.sidecar().is_none()) {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// Returns the way by which the service of a pod is reached whatever its sidecar does.
fn way_past(pod: Object<'_>, ports: Ports) -> Option<String> {
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
    ports::of_node(pod, ports.service?)
        .map(|port| format!("hostPort {port}: the service is reached on the node's address"))
}

/// Returns the name of the sidecar's that a pod uses for something else.
fn taken_name(pod: Object<'_>) -> Option<String> {
    let mut all = pod.containers().chain(pod.init_containers());
    if all.any(|container| name_of(container) == "sidecar") {
        return Some("a container of its own is called sidecar".to_owned());
    }
    let taken = list(pod.spec("volumes")).find(|volume| name_of(volume).starts_with("postern-"));
    taken.map(|volume| format!("has a volume of its own called {}", name_of(volume)))
}

/// Puts items in front of a list, which may be missing.
fn prepend(pod: &mut Value, name: &str, mut items: Vec<Value>) -> Result<(), String> {
    let spec = &mut pod["spec"];
    match spec.get(name) {
        None | Some(Value::Null) => {}
        Some(Value::Array(present)) => items.extend_from_slice(present),
        Some(_) => {
            return Err(format!(
                "/spec/{name} is no list: write one, or leave it out"
            ));
        }
    }
    spec[name] = items.into();
    Ok(())
}

/// Returns the container that has to outlive the drain by a hook: where none is set, and there is
/// time for it.
fn hook(pod: Object<'_>, ports: Ports, warnings: &mut Vec<String>) -> Option<usize> {
    let declares = |container: &Value| {
        ports::of_container(container).any(|(_, port)| Some(port) == ports.service)
    };
    let number = pod.containers().position(declares).unwrap_or(0);
    let own = pod.containers().nth(number)?.pointer("/lifecycle/preStop");
    if pod.is_task() || own.is_some() {
        return None;
    }
    let grace = pod.spec("terminationGracePeriodSeconds");
    let grace = grace.and_then(Value::as_u64).unwrap_or(GRACE_PERIOD);
    if grace < GRACE_PERIOD {
        warnings.push(format!(
            "terminationGracePeriodSeconds {grace}: too short for the service to outlive the drain, so rollouts may lose requests"
        ));
        return None;
    }
    Some(number)
}

/// The sidecar of one pod.
struct Sidecar<'a> {
    pod: Object<'a>,
    ports: Ports,
    protocol: &'static str,
    settings: &'a Settings,
    /// A ConfigMap may name another source of the key than the settings: then annotations decide.
    needs_application: bool,
    needs_secret: bool,
}

impl Sidecar<'_> {
    fn config_map(&self) -> Option<&str> {
        self.pod.annotation(names::CONFIG_MAP)
    }

    fn container(&self, probes: &Map<String, Value>) -> Result<Value, String> {
        let mut container = self.settings.component.container.clone();
        let of_all = &self.settings.resources;
        let is_http_1 = self.protocol == protocol::HTTP;
        let bounds = resources::set(&mut container, self.pod, of_all, is_http_1)?;
        for path in ADMIN_PORTS {
            if let Some(port) = container.pointer_mut(path) {
                *port = self.ports.admin.into();
            }
        }
        let of_component = list(container.get("env"));
        let variables = self.variables(probes, bounds)?.into_iter();
        let mut env = Vec::new();
        for variable in of_component {
            match name_of(variable) {
                APP_ID if !self.needs_application => {}
                APP_ID => env.push(self.app_id(variable)?),
                ADMIN_LISTEN => {
                    let address = format!("[::]:{}", self.ports.admin);
                    env.push(json!({"name": ADMIN_LISTEN, "value": address}));
                }
                _ => env.push(variable.clone()),
            }
        }
        env.extend(variables.map(|(name, value)| json!({"name": name, "value": value})));
        container["env"] = env.into();
        container["image"] = self.settings.image.clone().into();
        match (self.config_map(), container.as_object_mut()) {
            (Some(name), _) => container["envFrom"] = json!([{"configMapRef": {"name": name}}]),
            (None, members) => drop(members.and_then(|members| members.remove("envFrom"))),
        }
        if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
            mounts.retain(|mount| self.needs_secret || name_of(mount) != "postern-sidecar-secret");
        }
        Ok(container)
    }

    /// Returns the application: named by an annotation, or by the first usual label of the pod.
    fn app_id(&self, of_component: &Value) -> Result<Value, String> {
        if let Some(id) = self.setting(names::APP_ID, settings::app_id)? {
            return Ok(json!({"name": APP_ID, "value": id}));
        }
        let is_named = |label: &&&str| self.pod.label(label).is_some_and(|name| !name.is_empty());
        match NAME_LABELS.iter().find(is_named) {
            Some(&"app.kubernetes.io/name") => Ok(of_component.clone()),
            Some(label) => {
                let path = format!("metadata.labels['{label}']");
                let from = json!({"fieldRef": {"fieldPath": path}});
                Ok(json!({"name": APP_ID, "valueFrom": from}))
            }
            None => Err(format!(
                "its pods have no name: give them the label {} or the annotation {}",
                NAME_LABELS[0],
                names::APP_ID
            )),
        }
    }

    /// Returns the settings of this pod by variable.
    fn variables(
        &self,
        probes: &Map<String, Value>,
        bounds: Option<Bounds>,
    ) -> Result<BTreeMap<String, String>, String> {
        let component = &self.settings.component;
        let mut variables = match self.config_map() {
            Some(_) => BTreeMap::new(),
            None => self.settings.variables.clone(),
        };
        let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
        if let Some((requests, connections)) = bounds
            && self.config_map().is_none()
            && self.settings.follows_memory
        {
            for (name, number) in BOUNDS.into_iter().zip([requests, connections]) {
                set(name, number.to_string());
            }
        }
        let is_known = self.config_map().is_none() || self.pod.annotation(names::PORT).is_some();
        if let Some(port) = self.ports.service.filter(|_| is_known) {
            set(UPSTREAM, format!("{}://127.0.0.1:{port}", self.protocol));
        }
        if let Some(name) = self.setting(names::APP_NAME, settings::context_path)? {
            set(APP_NAME, name);
        }
        if self.pod.is_task() {
            for (name, value) in &component.of_tasks {
                set(name, value.clone());
            }
        }
        if !probes.is_empty() {
            set(PROBES, literal(&Value::from(probes.clone()).to_string()));
        }
        if let Some(mut list) = self.setting(names::PUBLIC_PATH, settings::pass_list)? {
            if let Some(of_all) = variables.get(PUBLIC_PATH) {
                list = format!("{of_all},{list}");
            }
            variables.insert(PUBLIC_PATH.to_owned(), list);
        }
        Ok(variables)
    }

    /// Returns the value of an annotation that holds a setting, if the sidecar accepts it.
    fn setting<T, E: Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<String>, String> {
        let Some(text) = self.pod.annotation(name) else {
            return Ok(None);
        };
        let why = if text.len() > MAX_VARIABLE_BYTES {
            format!("has more than {MAX_VARIABLE_BYTES} bytes")
        } else {
            match parse(text) {
                Ok(_) => return Ok(Some(literal(text))),
                Err(why) => why.to_string(),
            }
        };
        let line = format!("the annotation {name}: {why}");
        Err(line.chars().take(MAX_LINE).collect())
    }

    fn volumes(&self) -> Vec<Value> {
        let secret = self.pod.annotation(names::SECRET);
        let secret = secret.or(self.settings.secret.as_deref());
        let volumes = self.settings.component.volumes.iter();
        volumes
            .filter(|volume| self.needs_secret || volume.get("secret").is_none())
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

/// Escapes a value of a variable: Kubernetes would expand `$(NAME)`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}
