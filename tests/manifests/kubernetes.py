"""The manifests as the tests see them: rendered by kustomize, with queries on the objects."""

import os
import subprocess
from functools import cache
from pathlib import Path

import kubernetes_validate.utils
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
K8S = REPOSITORY / "k8s"
WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "Job"}
# A workload below the components.
SERVICE = REPOSITORY / "tests/manifests/service.yaml"
PAGES = [REPOSITORY / "docs/kubernetes.md", *sorted((REPOSITORY / "docs/kubernetes").glob("*.md"))]
DOCUMENT = "\n".join(page.read_text() for page in PAGES)
# Those with native sidecars, up to the newest with schemas here. In 1.29 `sleep` needs a feature gate.
VERSIONS = ["1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]
# A cache: a name with the hash of its content means the same everywhere.
CONFIG_MAPS = {}
# Its schemas have megabytes, which it reads anew for each object.
for name in ["schema_contents", "all_versions"]:
    setattr(kubernetes_validate.utils, name, cache(getattr(kubernetes_validate.utils, name)))


def directories(kind):
    """Returns every directory with a kustomization of this kind."""
    found = []
    for file in sorted(K8S.rglob("kustomization.yaml")):
        if yaml.safe_load(file.read_text())["kind"] == kind:
            found.append(file.parent)
    return found


def render(directory):
    """Returns the objects of a kustomization."""
    end = (kustomize_ours if directory.is_relative_to(K8S) else kustomize)(directory)
    assert end.returncode == 0, f"{directory}: {end.stderr}"
    objects = [document for document in yaml.load_all(end.stdout, yaml.CSafeLoader) if document]
    CONFIG_MAPS.update({each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")})
    return objects


def kustomize(directory):
    return subprocess.run(["kubectl", "kustomize", str(directory)], capture_output=True, text=True)


kustomize_ours = cache(kustomize)


def render_with(components, scratch, resources):
    """Returns the objects of components, laid over these resources in an overlay made for them."""
    write_overlay(scratch, SERVICE.read_text(), components, resources=resources(scratch))
    return render(scratch)


def write_overlay(scratch, service, components, resources=None, patches=(), more=None):
    """Writes an overlay in `scratch`: a service as its owner wrote it, and components over it."""
    (scratch / "service").mkdir(exist_ok=True)
    (scratch / "service/service.yaml").write_text(service)
    (scratch / "service/kustomization.yaml").write_text("resources: [service.yaml]\n")
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(each, scratch) for each in resources or [scratch / "service"]],
        "components": [os.path.relpath(component, scratch) for component in components],
        "patches": list(patches),
        **(more or {}),
    }
    (scratch / "kustomization.yaml").write_text(yaml.safe_dump(overlay))


def of_kind(objects, *kinds):
    return [each for each in objects if each["kind"] in kinds]


def named(objects, kind, name):
    found = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def pods(objects):
    """Returns name and pod specification of every workload."""
    return [(each["metadata"]["name"], each["spec"]["template"]["spec"]) for each in of_kind(objects, *WORKLOADS)]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def program(container):
    """Returns `auth-server` or `sidecar` for a container of ours."""
    image = container["image"].rpartition(":")[0]
    return image.rpartition("/")[2] if "postern/" in image else None


def ours(objects):
    """Returns pod and container of each container of ours."""
    return [(pod, each) for _, pod in pods(objects) for each in containers(pod) if program(each)]


def settings(container):
    """Returns its environment, with made-up values where Kubernetes fills them in at run time."""
    made_up = {"status.podIP": "192.0.2.7", "metadata.labels['app.kubernetes.io/name']": "orders"}
    values = {}
    for source in container.get("envFrom", []):
        values |= CONFIG_MAPS[source["configMapRef"]["name"]]
    for variable in container.get("env", []):
        values[variable["name"]] = (
            variable["value"] if "value" in variable else made_up[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        )
    return values


def assert_restricted(where, pod, container, assigned=False):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, and a user that is not assigned"""
    special = container.get("securityContext", {})
    both = {**pod.get("securityContext", {}), **special}
    what = f"{where}/{container['name']}: {both}"
    assert both.get("runAsNonRoot") is True and both.get("runAsUser", int(assigned)) > 0, what
    assert both.get("seccompProfile") == {"type": "RuntimeDefault"}, what
    assert special.get("allowPrivilegeEscalation") is False, what
    assert special.get("capabilities") == {"drop": ["ALL"]}, what
    # Beyond the standard.
    assert special.get("readOnlyRootFilesystem") is True, what


def reads(pod, container, volume):
    """Returns true if the container's group, and no other, may read this mounted secret."""
    group = pod.get("securityContext", {}).get("fsGroup", 0)
    groups = {container["securityContext"].get("runAsGroup"), pod.get("securityContext", {}).get("fsGroup")}
    return volume["defaultMode"] == 0o440 and group in groups


def production_errors(objects):
    """Returns the settings that are unsafe in production, in words."""
    errors = []
    for workload in of_kind(objects, *WORKLOADS):
        name, pod = workload["metadata"]["name"], workload["spec"]["template"]["spec"]
        for container in containers(pod):
            values = settings(container)
            if program(container) == "auth-server" and container.get("args") == ["serve"]:
                if values.get("POSTERN_USERS") == "builtin":
                    errors.append(f"{name}: --users builtin lets any client in")
                if values.get("POSTERN_STORE", "file:").startswith("file:") and workload["spec"]["replicas"] > 1:
                    errors.append(f"{name}: a file store is one server's, not several replicas'")
                if not values.get("POSTERN_TLS_CERT"):
                    errors.append(f"{name}: passwords and keys travel in plain HTTP")
                if not values.get("POSTERN_KEY_ENCRYPTION_KEY_FILE"):
                    errors.append(f"{name}: the private key is stored in clear")
            if program(container) == "auth-server" and values.get("POSTERN_STORE", "").startswith("redis:"):
                errors.append(f"{name}: the store is reached without TLS")
            if program(container) == "sidecar":
                if not values["POSTERN_AUTH_SERVER"].partition("://")[0].endswith("https"):
                    errors.append(f"{name}: the key is fetched in plain HTTP")
                if not values.get("POSTERN_ISSUER"):
                    errors.append(f"{name}: tokens of any issuer are accepted")
    return errors


def without_original(thing):
    """Removes the annotation of what was replaced, which the component does not write."""
    annotations = thing["metadata"].get("annotations", {})
    if annotations.pop("postern/original", None) and not annotations:
        del thing["metadata"]["annotations"]
    return thing
