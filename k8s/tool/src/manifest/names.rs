//! Names of labels and annotations.

/// The label of workloads, pods and Services that have a sidecar.
pub(crate) const SIDECAR: &str = "postern/sidecar";
/// The prefix of every name below.
pub(crate) const PREFIX: &str = "postern/";
/// The port of the service: a number, or the name of a container's port.
pub(crate) const PORT: &str = "postern/port";
/// The context path of the service; without it the service is at `/`.
pub(crate) const APP_NAME: &str = "postern/app-name";
/// The application that fetches the key; by default the name in the pod's labels.
pub(crate) const APP_ID: &str = "postern/app-id";
/// The pass list.
pub(crate) const PUBLIC_PATH: &str = "postern/public-path";
/// A ConfigMap with the settings, in place of those of all sidecars.
pub(crate) const CONFIG_MAP: &str = "postern/config-map";
/// A ConfigMap with the sidecar's file of settings, in place of those of all sidecars.
pub(crate) const CONFIG_FILE: &str = "postern/config-file";
/// The Secret with the key `app-secret`.
pub(crate) const SECRET: &str = "postern/secret";
/// Ports of a Service that lead past the sidecar on purpose, by name or number.
pub(crate) const OPEN_PORTS: &str = "postern/open-ports";
/// The replaced members of an object, which `inject --remove` puts back.
pub(crate) const ORIGINAL: &str = "postern/original";
/// `own`: probes stay as they are.
pub(crate) const PROBES: &str = "postern/probes";
/// The protocol of the service, where its manifests do not say it.
pub(crate) const UPSTREAM_PROTOCOL: &str = "postern/upstream-protocol";
/// The user id of the sidecar's container; an empty one leaves it to the cluster.
pub(crate) const RUN_AS_USER: &str = "postern/run-as-user";
pub(crate) const CPU_REQUEST: &str = "postern/cpu-request";
pub(crate) const CPU_LIMIT: &str = "postern/cpu-limit";
pub(crate) const MEMORY_REQUEST: &str = "postern/memory-request";
pub(crate) const MEMORY_LIMIT: &str = "postern/memory-limit";
/// Every annotation of people: a workload shares these with its pods.
pub(crate) const ALL: [&str; 15] = [
    PORT,
    APP_NAME,
    APP_ID,
    PUBLIC_PATH,
    CONFIG_MAP,
    CONFIG_FILE,
    SECRET,
    OPEN_PORTS,
    PROBES,
    UPSTREAM_PROTOCOL,
    RUN_AS_USER,
    CPU_REQUEST,
    CPU_LIMIT,
    MEMORY_REQUEST,
    MEMORY_LIMIT,
];
