//! The sidecar of one pod: missing members are added, everything else stays.

use std::collections::BTreeMap;
use std::fmt::Display;

use postern_contract::settings;
use serde_json::{Map, Value, json};

use crate::container::component::set_user;
use crate::container::resources::{self, Bounds};
use crate::container::settings::{
    APP_ID, APP_NAME, AUTH_SERVER, BOUNDS, PROBES, PUBLIC_PATH, Settings, UPSTREAM,
};
use crate::manifest::metadata::inherit;
use crate::manifest::names;
use crate::manifest::object::{Object, list, name_of};
use crate::manifest::original;
use crate::network::probes::{self, ForwardedProbes};
use crate::network::protocol_words::HTTP;
use crate::network::{ports, protocol};
use crate::yaml::Document;

/// Labels that name an application, the usual one first.
const NAME_LABELS: [&str; 4] = ["app.kubernetes.io/name", "app", "k8s-app", "run"];
/// Kubernetes' default, in seconds; the sidecar's whole stop fits into it.
const GRACE_PERIOD: u64 = 30;

/// The volume of the ConfigMap that [`names::CONFIG_FILE`] names.
const FILE_VOLUME: &str = "postern-sidecar-file";
/// The directory at which it is mounted.
const FILE_PATH: &str = "/etc/postern";
/// Linux starts no program with a variable of 128 KiB, and the operator's patterns join a pod's.
const MAX_VARIABLE_BYTES: usize = 96 * 1024;

/// Puts the sidecar into the pod of a labelled object, and returns warnings. A pod that has one stays
/// as it is. Services of the input that select the pod say which protocol it speaks.
///
/// # Errors
/// The reason why the pod cannot have one; the object is then of no use.
pub(crate) fn add_sidecar(
    value: &mut Value,
    settings: &Settings,
    input: &[Document],
) -> Result<Vec<String>, String> {
    // Copy the annotations of the workload to its pods: the webhook reads the pods alone.
    inherit(value, None)?;
    let object = Object(value);
    let pod = checked_pod(object)?;
    let mut warnings = Vec::new();
    if let Some(name) = object.unknown_annotation().or(pod.unknown_annotation()) {
        warnings.push(format!("the annotation {name} means nothing"));
    }
    // Return only after the checks: later edits must not lead past the sidecar that is there.
    if pod.sidecar().is_some() {
        return Ok(warnings);
    }
    let plan = planned(object, pod, settings, input, &mut warnings)?;
    apply(value, plan)?;
    Ok(warnings)
}

/// Returns the pod of an object.
///
/// # Errors
/// The reason why the pod has no place for a sidecar, or is reached whatever its sidecar does.
fn checked_pod(object: Object<'_>) -> Result<Object<'_>, String> {
    let pod = object
        .pod()
        .filter(|pod| pod.containers().next().is_some())
        .ok_or("has no containers")?;
    check(pod)?;
    if let Some(port) = ports::service_port(pod)?
        && let Some(host_port) = ports::node_port(pod, port)
    {
        return Err(format!(
            "hostPort {host_port}: the service is reached on the node's address"
        ));
    }
    Ok(pod)
}

/// Rejects a pod that has no place for a sidecar, or is reached whatever its sidecar does.
fn check(pod: Object<'_>) -> Result<(), String> {
    if pod.spec("hostNetwork") == true {
        return Err("hostNetwork: the service is reached on the node's address".to_owned());
    }
    if pod.spec("os")["name"] == "windows"
        || pod.spec("nodeSelector")["kubernetes.io/os"] == "windows"
    {
        return Err("the sidecar does not run on Windows".to_owned());
    }
    // A sidecar that is there has the container and volume names below by right.
    if pod.sidecar().is_some() {
        return Ok(());
    }
    let mut all = pod.containers().chain(pod.init_containers());
    if all.any(|container| name_of(container) == "sidecar") {
        return Err("a container of its own is called sidecar".to_owned());
    }
    let mut volumes = list(pod.spec("volumes")).map(name_of);
    match volumes.find(|name| name.starts_with("postern-")) {
        Some(name) => Err(format!("has a volume of its own called {name}")),
        None => Ok(()),
    }
}

/// Everything that a sidecar brings into its pod.
struct Plan {
    /// Values of the pod's members, by their pointers.
    changes: Vec<(String, Value)>,
    container: Value,
    volumes: Vec<Value>,
}

/// Decides how a pod without a sidecar gets one, and adds warnings.
///
/// # Errors
/// The reason why the pod cannot have one.
fn planned(
    owner: Object<'_>,
    pod: Object<'_>,
    settings: &Settings,
    input: &[Document],
    warnings: &mut Vec<String>,
) -> Result<Plan, String> {
    let service = ports::find_service_port(pod)?;
    let forwarded = match pod.annotation(names::PROBES) {
        Some("own") => ForwardedProbes::default(),
        Some(other) => {
            return Err(format!(
                "the annotation {} is {other:?}, not \"own\"",
                names::PROBES
            ));
        }
        None => probes::forward(pod, service, &settings.user_headers(), warnings),
    };
    let mut changes = forwarded.changes;
    if let Some(number) = container_without_hook(pod, service, warnings) {
        let path = format!("/spec/containers/{number}/lifecycle/preStop");
        changes.push((path, settings.component.hook.clone()));
    }
    let sidecar = Sidecar {
        pod,
        service,
        protocol: protocol::service_protocol(owner, pod, service, input)?,
        settings,
        config_map: pod.annotation(names::CONFIG_MAP),
        config_file: pod.annotation(names::CONFIG_FILE),
    };
    let container = sidecar.container(&forwarded.settings)?;
    changes.extend(resources::whole_pod_changes(pod, &container));
    Ok(Plan {
        changes,
        container,
        volumes: sidecar.volumes(),
    })
}

/// Returns the number of the service's container, if it needs a hook to outlive the drain: it has no hook
/// of its own, and there is time for one.
fn container_without_hook(
    pod: Object<'_>,
    service: u16,
    warnings: &mut Vec<String>,
) -> Option<usize> {
    let declares =
        |container: &Value| ports::container_ports(container).any(|(_, port)| port == service);
    // Where no container declares the port, the service is taken for the first one.
    let number = pod.containers().position(declares).unwrap_or(0);
    let own = pod.containers().nth(number)?.pointer("/lifecycle/preStop");
    if pod.is_task() || own.is_some() {
        return None;
    }
    let grace = pod
        .spec("terminationGracePeriodSeconds")
        .as_u64()
        .unwrap_or(GRACE_PERIOD);
    // The hook has to fit into the grace period with the service's own end.
    if grace < GRACE_PERIOD {
        warnings.push(format!(
            "terminationGracePeriodSeconds {grace}: too short for the service to outlive the drain, so rollouts may lose requests"
        ));
        return None;
    }
    Some(number)
}

/// Changes the pod of an object as planned.
///
/// # Errors
/// The member of the pod that is no list or map; the object is then half changed.
fn apply(value: &mut Value, plan: Plan) -> Result<(), String> {
    let path = Object(value).pod_path().unwrap_or_default();
    let pod = value.pointer_mut(path).ok_or("has no containers")?;
    original::change(pod, plan.changes)
        .and_then(|()| prepend(pod, "initContainers", vec![plan.container]))
        .and_then(|()| prepend(pod, "volumes", plan.volumes))
        .map_err(|why| format!("{path}{why}"))
}

/// Puts items in front of a list, which may be missing.
fn prepend(pod: &mut Value, name: &str, mut items: Vec<Value>) -> Result<(), String> {
    let present = &mut pod["spec"][name];
    match present {
        Value::Null => {}
        Value::Array(present) => items.append(present),
        _ => {
            return Err(format!(
                "/spec/{name} is no list: write one, or leave it out"
            ));
        }
    }
    *present = items.into();
    Ok(())
}

/// The sidecar of one pod.
struct Sidecar<'a> {
    pod: Object<'a>,
    /// The port of the service.
    service: u16,
    protocol: &'static str,
    settings: &'a Settings,
    config_map: Option<&'a str>,
    config_file: Option<&'a str>,
}

impl Sidecar<'_> {
    fn container(&self, probes: &Map<String, Value>) -> Result<Value, String> {
        let mut container = self.settings.component.container.clone();
        let bounds = resources::set(
            &mut container,
            self.pod,
            &self.settings.resources,
            self.protocol == HTTP,
        )?;
        // The pod's own application takes the place of the component's.
        let mut env = Vec::from_iter(self.app_id()?);
        for variable in list(&container["env"]) {
            if name_of(variable) != APP_ID {
                env.push(variable.clone());
            }
        }
        for (name, value) in self.variables(probes, bounds)? {
            env.push(json!({"name": name, "value": value}));
        }
        container["env"] = env.into();
        container["image"] = self.settings.image.clone().into();
        if let Some(text) = self.pod.annotation(names::RUN_AS_USER) {
            set_user(&mut container, text)
                .map_err(|why| format!("the annotation {}: {why}", names::RUN_AS_USER))?;
        }
        // Without a ConfigMap the settings of all sidecars are in `env`, or the pod's file has them.
        if let Some(name) = self.config_map {
            container["envFrom"] = json!([{"configMapRef": {"name": name}}]);
        } else if let Some(members) = container.as_object_mut() {
            members.remove("envFrom");
        }
        if let Value::Array(mounts) = &mut container["volumeMounts"] {
            if !self.has_application() {
                mounts.retain(|mount| name_of(mount) != "postern-sidecar-secret");
            }
            // Mount the directory: the kubelet does not update a file that is mounted alone.
            if self.config_file.is_some() {
                mounts.push(json!({"name": FILE_VOLUME, "mountPath": FILE_PATH, "readOnly": true}));
            }
        }
        Ok(container)
    }

    /// Returns true for a sidecar that fetches the key as an application, with its id and secret.
    fn has_application(&self) -> bool {
        // A ConfigMap may name another source of the key, and a file does: then annotations decide.
        let has_server =
            self.settings.variables.contains_key(AUTH_SERVER) && self.config_file.is_none();
        let own = self.config_map.or(self.config_file);
        has_server || own.and(self.pod.annotation(names::SECRET)).is_some()
    }

    /// Returns the application: named by an annotation, or by the first usual label of the pod.
    fn app_id(&self) -> Result<Option<Value>, String> {
        if !self.has_application() {
            return Ok(None);
        }
        if let Some(id) = self.setting(names::APP_ID, settings::app_id)? {
            return Ok(Some(json!({"name": APP_ID, "value": id})));
        }
        let is_named = |label: &&str| !self.pod.label(label).unwrap_or_default().is_empty();
        let Some(label) = NAME_LABELS.into_iter().find(is_named) else {
            return Err(format!(
                "its pods have no name: give them the label {} or the annotation {}",
                NAME_LABELS[0],
                names::APP_ID
            ));
        };
        // A reference, so that the value follows the label of the pod.
        let reference = json!({"fieldRef": {"fieldPath": format!("metadata.labels['{label}']")}});
        Ok(Some(json!({"name": APP_ID, "valueFrom": reference})))
    }

    /// Returns the settings of this pod by variable.
    fn variables(
        &self,
        probes: &Map<String, Value>,
        bounds: Option<Bounds>,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut variables = BTreeMap::new();
        // A ConfigMap or file of the pod's own takes the place of the operator's settings.
        if self.config_map.or(self.config_file).is_none() {
            variables.clone_from(&self.settings.variables);
            if self.settings.follows_memory {
                for (name, number) in BOUNDS.into_iter().zip(bounds.into_iter().flatten()) {
                    variables.insert(name.to_owned(), number.to_string());
                }
            }
        }
        let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
        if self.config_file.is_some() {
            set("POSTERN_CONFIG", format!("{FILE_PATH}/sidecar.toml"));
        }
        let upstream = format!("{}://127.0.0.1:{}", self.protocol, self.service);
        set(UPSTREAM, upstream);
        if let Some(name) = self.setting(names::APP_NAME, settings::context_path)? {
            set(APP_NAME, name);
        }
        if !probes.is_empty() {
            set(PROBES, escaped(&Value::from(probes.clone()).to_string()));
        }
        // No load balancer sends requests to a task, so its sidecar ends without a lame-duck time.
        if self.pod.is_task() {
            variables.extend(self.settings.component.task_variables.clone());
        }
        if let Some(mut list) = self.setting(names::PUBLIC_PATH, settings::pass_list)? {
            // The annotation adds to the operator's patterns, and removes none.
            if let Some(operator_list) = variables.get(PUBLIC_PATH) {
                list = format!("{operator_list},{list}");
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
        if text.len() > MAX_VARIABLE_BYTES {
            return Err(format!(
                "the annotation {name}: has more than {MAX_VARIABLE_BYTES} bytes"
            ));
        }
        match parse(text) {
            Ok(_) => Ok(Some(escaped(text))),
            Err(why) => Err(format!("the annotation {name}: {why}")),
        }
    }

    fn volumes(&self) -> Vec<Value> {
        let mut volumes = self.settings.component.volumes.clone();
        volumes.retain(|volume| self.has_application() || volume.get("secret").is_none());
        if let Some(name) = self.config_file {
            volumes.push(json!({"name": FILE_VOLUME, "configMap": {"name": name}}));
        }
        if let Some(secret) = self.pod.annotation(names::SECRET) {
            for volume in &mut volumes {
                if let Some(name) = volume.pointer_mut("/secret/secretName") {
                    *name = secret.into();
                }
            }
        }
        volumes
    }
}

/// Escapes a value of a variable: Kubernetes would expand `$(NAME)`.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}
