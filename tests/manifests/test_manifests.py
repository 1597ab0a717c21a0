"""The promises of `k8s/`: every kustomization renders, is valid, fits the programs, and is safe."""

import copy
import json
import re

import kubernetes_validate
import pytest
import yaml
from kubernetes import (
    DOCUMENT,
    K8S,
    VERSIONS,
    assert_restricted,
    containers,
    directories,
    named,
    of_kind,
    ours,
    pods,
    production_errors,
    program,
    reads,
    render,
    render_with,
    settings,
)
from openshift import assigned
from programs import Mounts, Running, accepted, checked, run, variables

# A version without native sidecars.
PLAIN_VERSION = "1.28"
PROD = K8S / "overlays/prod"
DEV = K8S / "overlays/dev"
JOB = K8S / "examples/job"

KUSTOMIZATIONS = {str(path.relative_to(K8S)): path for path in directories("Kustomization")}
COMPONENTS = {str(path.relative_to(K8S)): path for path in directories("Component")}


def everything(scratch):
    return lambda directory: [K8S / "base/auth-server", directory / "service"]


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """Returns the objects of every kustomization, and of every component laid over the rest."""
    objects = {name: render(path) for name, path in KUSTOMIZATIONS.items()}
    for name, path in COMPONENTS.items():
        scratch = tmp_path_factory.mktemp("component")
        # It changes what the other one adds, and leaves the rest to the cluster.
        before = [K8S / "components/sidecar"] if name == "components/openshift" else []
        objects[name] = render_with([*before, path], scratch, everything(scratch))
    for each in of_kind(objects["components/openshift"], "Deployment"):
        template = each["spec"]["template"]
        template["spec"] = assigned(template["spec"])
    return objects


ALL = [*KUSTOMIZATIONS, *COMPONENTS]


@pytest.mark.parametrize("name", ALL)
def test_it_is_valid(rendered, name):
    special = {"components/sidecar-plain": [PLAIN_VERSION], "examples/admission": VERSIONS[1:]}
    for version in special.get(name, VERSIONS):
        for each in rendered[name]:
            if each["apiVersion"].startswith("monitoring.coreos.com/"):
                continue  # The operator's own types: test_monitoring.py.
            kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_field_would_be_noticed(rendered):
    broken = copy.deepcopy(named(rendered["overlays/dev"], "Deployment", "orders"))
    broken["spec"]["template"]["spec"]["initContainers"][0]["restartpolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


@pytest.mark.parametrize("name", ALL)
def test_images_are_pinned(rendered, name):
    for _, pod in pods(rendered[name]):
        for container in containers(pod):
            repository, _, tag = container["image"].rpartition(":")
            assert repository and re.search(r"\d", tag) and tag != "latest", container["image"]


@pytest.mark.parametrize("name", ALL)
def test_no_secret_is_in_clear_text(rendered, name):
    assert not of_kind(rendered[name], "Secret")
    for pod, container in ours(rendered[name]):
        for variable in settings(container):
            secret = re.search("SECRET|PASSWORD|KEY", variable)
            assert not secret or variable.endswith(("_FILE", "_TLS_KEY", "_KEYS", "_KEY_CACHE")), variable
        secrets = {volume["name"]: volume["secret"] for volume in pod.get("volumes", []) if "secret" in volume}
        for mount in container.get("volumeMounts", []):
            # root:GROUP 0440, which the programs accept.
            assert mount["name"] not in secrets or reads(pod, container, secrets[mount["name"]]), mount


@pytest.mark.parametrize("name", ALL)
def test_every_pod_meets_the_restricted_standard(rendered, name):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    for where, pod in pods(rendered[name]):
        assert not any(pod.get(field) for field in ["hostNetwork", "hostPID", "hostIPC"])
        allowed = {"configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected", "downwardAPI", "name"}
        for volume in pod.get("volumes", []):
            assert set(volume) <= allowed, volume
        for container in containers(pod):
            assert_restricted(where, pod, container)
            assert container["resources"]["limits"]["memory"], where
            assert "cpu" not in container["resources"]["limits"], where


@pytest.mark.parametrize("name", ALL)
def test_no_pod_has_service_variables_or_a_needless_token(rendered, name):
    for pod, container in ours(rendered[name]):
        # The owner of a sidecar's pod may need them.
        assert program(container) == "sidecar" or pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", ALL)
def test_policies_select_pods_of_ours_only(rendered, name):
    for policy in of_kind(rendered[name], "NetworkPolicy"):
        assert policy["spec"]["podSelector"].get("matchLabels"), policy["metadata"]["name"]


@pytest.mark.parametrize("name", ALL)
def test_ports_and_selectors_lead_somewhere(rendered, name):
    workloads = of_kind(rendered[name], "Deployment", "StatefulSet", "DaemonSet")
    for service in of_kind(rendered[name], "Service"):
        selector = service["spec"]["selector"]
        behind = [w for w in workloads if selector.items() <= w["spec"]["template"]["metadata"]["labels"].items()]
        assert len(behind) == 1, f"{service['metadata']['name']} selects {len(behind)} workloads"
        open_ports = {
            key: port["containerPort"]
            for container in containers(behind[0]["spec"]["template"]["spec"])
            for port in container.get("ports", [])
            for key in (port["name"], port["containerPort"])
        }
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in open_ports, f"{service['metadata']['name']}: {port}"
        if service["metadata"].get("labels", {}).get("postern/sidecar") and 18080 in open_ports:
            assert {open_ports[port["targetPort"]] for port in service["spec"]["ports"]} == {18080}


def variables_of_ours():
    """Returns the variables of each program, in any kustomization."""
    return sorted(
        {
            (program(container), variable)
            for path in KUSTOMIZATIONS.values()
            for _, container in ours(render(path))
            for variable in settings(container)
        }
    )


@pytest.mark.parametrize("which, variable", variables_of_ours())
def test_every_variable_is_a_setting_of_its_program(which, variable):
    assert variable in variables(which)


def containers_of_ours(name):
    return sorted({program(container) for _, container in ours(render(KUSTOMIZATIONS[name]))})


@pytest.mark.parametrize(
    "name, which",
    [
        (name, which)
        for name in KUSTOMIZATIONS
        if name != "base/auth-server"
        for which in containers_of_ours(name)
    ],
)
def test_the_programs_accept_their_configuration(rendered, name, which, tmp_path):
    mounts = Mounts(tmp_path)
    for _, container in ours(rendered[name]):
        if program(container) != which or container["args"] != ["serve"]:
            continue
        printed = accepted(which, mounts.localised(container))
        for variable, value in mounts.localised(container).items():
            flag = variable.removeprefix("POSTERN_").lower().replace("_", "-")
            assert re.search(rf"^{flag} = ", printed, re.M), f"--{flag} ({value}) is not in effect:\n{printed}"


def test_the_base_leaves_the_users_to_an_overlay(rendered, tmp_path):
    ((_, container),) = ours(rendered["base/auth-server"])
    values = Mounts(tmp_path).localised(container)
    end = checked("auth-server", values)
    assert end.returncode == 78 and "without --users" in end.stderr, end.stderr
    accepted("auth-server", {**values, "POSTERN_USERS": "builtin"})


@pytest.mark.parametrize("name, application", [("overlays/prod", "orders"), ("examples/application", "invoices")])
def test_a_registration_is_accepted_and_can_be_repeated(rendered, name, application, tmp_path):
    mounts = Mounts(tmp_path)
    found = [c for _, c in ours(rendered[name]) if c["args"][0] == "application"]
    assert len(found) == 1
    for _ in range(2):
        store = {"POSTERN_STORE": f"file:{tmp_path}/store"}
        end = run("auth-server", *mounts.arguments(found[0]), values=store)
        assert end.returncode == 0, end.stderr
    listed = run("auth-server", "application", "list", values=store).stdout
    assert json.loads(listed)["id"] == application, listed


@pytest.mark.parametrize("which", ["auth-server", "sidecar"])
def test_the_probes_request_paths_that_the_programs_serve(rendered, which, tmp_path):
    container = next(c for _, c in ours(rendered["overlays/dev"]) if program(c) == which)
    # The file store of the manifest is on a volume.
    with Running(container, Mounts(tmp_path)) as running:
        paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ["startup", "liveness", "readiness"]}
        assert paths == {"startup": "/startupz", "liveness": "/livez", "readiness": "/readyz"}
        running.reaches(paths["startup"], 200)
        assert running.status(paths["liveness"]) == 200
        # A sidecar without a key is started, and not ready.
        running.reaches(paths["readiness"], 200 if which == "auth-server" else 503)
        assert running.status("/metrics") == 200
        assert running.status("/nowhere") == 404


@pytest.mark.parametrize("name", ALL)
def test_probes_go_to_the_admin_port_and_hooks_exist(rendered, name):
    admin = {"auth-server": "admin", "sidecar": 18081}
    for pod, container in ours(rendered[name]):
        for kind in ["startupProbe", "readinessProbe", "livenessProbe"]:
            if kind in container:
                assert container[kind]["httpGet"]["port"] == admin[program(container)]
        for hook in container.get("lifecycle", {}).values():
            binary, *arguments = hook["exec"]["command"]
            assert binary == f"/{program(container)}"
            # No server listens there (69), so a mistake in the command line is visible (64).
            end = run(program(container), *arguments[:-1], "1", "--admin-listen", "127.0.0.1:1")
            assert end.returncode == 69, end.stderr


@pytest.mark.parametrize("name", ALL)
def test_the_grace_period_is_long_enough_for_the_whole_stop(rendered, name):
    for pod, container in ours(rendered[name]):
        if container["args"] != ["serve"]:
            continue
        values = settings(container)
        stop = int(values["POSTERN_LAME_DUCK"]) + int(values.get("POSTERN_DRAIN_TIMEOUT", 20))
        drain = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["0"])[-1]
        # A drain includes the lame-duck time.
        needed = max(int(drain), int(values["POSTERN_LAME_DUCK"])) + int(values.get("POSTERN_DRAIN_TIMEOUT", 20))
        assert pod.get("terminationGracePeriodSeconds", 30) > max(stop, needed), container["name"]
        for other in pod["containers"]:
            held = other.get("lifecycle", {}).get("preStop", {}).get("sleep")
            if held and other is not container:
                assert held["seconds"] > int(values["POSTERN_LAME_DUCK"]), "the service ends before callers know"


def test_the_sidecar_is_native_and_first(rendered):
    for name in ["overlays/dev", "overlays/prod", "examples/job", "components/sidecar"]:
        found = [pod for pod, c in ours(rendered[name]) if program(c) == "sidecar"]
        assert found
        for pod in found:
            assert pod["initContainers"][0]["name"] == "sidecar"
            assert pod["initContainers"][0]["restartPolicy"] == "Always"
    job = named(rendered["examples/job"], "Job", "month-end")["spec"]["template"]["spec"]
    assert [c["name"] for c in job["containers"]] == ["month-end"], "nothing that a Job would wait for"


def test_the_plain_variant_starts_the_sidecar_first(rendered):
    pod = next(pod for pod, c in ours(rendered["components/sidecar-plain"]) if program(c) == "sidecar")
    assert [c["name"] for c in pod["containers"]] == ["sidecar", "orders"]
    assert pod["containers"][0]["lifecycle"]["postStart"]["exec"]["command"][:2] == ["/sidecar", "wait"]
    assert "restartPolicy" not in pod["containers"][0]
    assert "preStop" in pod["containers"][1]["lifecycle"]


def test_both_variants_differ_only_where_they_have_to():
    def pod(component):
        patch = yaml.safe_load((K8S / f"components/{component}/sidecar.yaml").read_text())
        return patch, patch["spec"]["template"]["spec"]

    (native, native_pod), (plain, plain_pod) = pod("sidecar"), pod("sidecar-plain")
    # A native sidecar is an init container that keeps running.
    (container,) = native_pod.pop("initContainers")
    assert container.pop("restartPolicy") == "Always"
    native_pod["containers"] = [container]
    # The plain sidecar delays the service's start by itself.
    assert plain_pod["containers"][0]["lifecycle"].pop("postStart")
    assert plain == native


def test_where_prometheus_is_expected_is_in_the_document(rendered):
    namespaces = {
        source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        for objects in rendered.values()
        for policy in of_kind(objects, "NetworkPolicy")
        for rule in policy["spec"]["ingress"]
        for source in rule.get("from", [])
        if source.get("namespaceSelector", {}).get("matchLabels")
    }
    assert namespaces and all(f"`{namespace}`" in DOCUMENT for namespace in namespaces), namespaces


def test_the_service_is_reached_through_the_sidecar_only(rendered):
    policy = named(rendered["components/networkpolicy"], "NetworkPolicy", "postern-sidecar")["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == {18080, 18081}
    for name in ["overlays/dev", "overlays/prod"]:
        pod = named(rendered[name], "Deployment", "orders")["spec"]["template"]
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        service = pod["spec"]["containers"][0]
        assert "ports" not in service, "nothing points at it"
        probe = service["readinessProbe"]["httpGet"]
        assert probe["port"] == 18081, "the kubelet does not reach 127.0.0.1"
        forwarded = json.loads(settings(pod["spec"]["initContainers"][0])["POSTERN_PROBES"])
        assert probe["path"].removeprefix("/probe/") in forwarded


def test_replicas_are_two_that_outlive_a_node(rendered):
    for name in ["components/redis", "components/replicated", "overlays/prod"]:
        server = named(rendered[name], "Deployment", "auth-server")["spec"]
        assert server["replicas"] == 2
        assert server["strategy"]["type"] == "RollingUpdate"
        assert server["template"]["spec"]["topologySpreadConstraints"]
        assert named(rendered[name], "PodDisruptionBudget", "auth-server")["spec"]["minAvailable"] == 1
        assert not [c for c in of_kind(rendered[name], "PersistentVolumeClaim") if "keys" in c["metadata"]["name"]]
    alone = named(rendered["base/auth-server"], "Deployment", "auth-server")["spec"]
    assert (alone["replicas"], alone["strategy"]["type"]) == (1, "Recreate")


def test_production_is_fit_for_production(rendered):
    assert production_errors(rendered["overlays/prod"]) == []


def set_variable(name, value):
    def change(objects):
        for _, container in ours(objects):
            values = settings(container)
            if name in values:
                replace_environment(container, {**values, name: value})
    return change


def drop_variable(name):
    def change(objects):
        for _, container in ours(objects):
            replace_environment(container, {key: value for key, value in settings(container).items() if key != name})
    return change


def replace_environment(container, values):
    container.pop("envFrom", None)
    container["env"] = [{"name": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize(
    "change, error",
    [
        (set_variable("POSTERN_USERS", "builtin"), "--users builtin"),
        (set_variable("POSTERN_STORE", "file:/var/lib/postern"), "a file store"),
        (drop_variable("POSTERN_STORE"), "a file store"),
        (set_variable("POSTERN_STORE", "redis://redis:6379/0"), "without TLS"),
        (set_variable("POSTERN_AUTH_SERVER", "http://auth:9000/auth"), "fetched in plain HTTP"),
        (set_variable("POSTERN_AUTH_SERVER", "dns://auth:9000/auth"), "fetched in plain HTTP"),
        (drop_variable("POSTERN_TLS_CERT"), "travel in plain HTTP"),
        (drop_variable("POSTERN_KEY_ENCRYPTION_KEY_FILE"), "stored in clear"),
        (drop_variable("POSTERN_ISSUER"), "any issuer"),
    ],
)
def test_what_is_not_fit_for_production_is_found(rendered, change, error):
    objects = copy.deepcopy(rendered["overlays/prod"])
    change(objects)
    assert any(error in each for each in production_errors(objects)), production_errors(objects)


def test_every_secret_that_production_needs_is_in_the_document(rendered):
    for _, pod in pods(rendered["overlays/prod"]):
        for volume in pod["volumes"]:
            name = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
            assert not name or f"`{name}`" in DOCUMENT, f"{name} is not in docs/kubernetes"
