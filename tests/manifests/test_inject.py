"""`postern-k8s inject`: its pods are valid, and those of the kustomize component."""

import copy
import json
import re
from fractions import Fraction

import kubernetes_validate
import pytest
import yaml
from kubernetes import K8S, REPOSITORY, SERVICE, VERSIONS, assert_restricted, named, pods, render, settings, without_original, write_overlay
from programs import Mounts, accepted, run

EXAMPLES = sorted((REPOSITORY / "tests/data/inject/out").glob("*.yaml"))


def flat(documents):
    for each in documents:
        yield from flat(each["items"]) if each["kind"] == "List" else [each]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_injected_manifests_are_valid(example):
    objects = list(flat(each for each in yaml.safe_load_all(example.read_text()) if each))
    # Resources of a pod are younger than others.
    for version in VERSIONS[3:] if example.stem == "pod-resources" else VERSIONS:
        for each in objects:
            if "argoproj" not in each["apiVersion"]:
                kubernetes_validate.validate(each, version, strict=True)
    for sidecar in sidecars(objects):
        assert_restricted(example.stem, {}, sidecar, assigned=example.stem == "openshift")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_injected_sidecars_have_a_valid_configuration(example, tmp_path):
    for each in flat(each for each in yaml.safe_load_all(example.read_text()) if each):
        for sidecar in sidecars(each):
            if "envFrom" not in sidecar:
                accepted("sidecar", Mounts(tmp_path).localised(known(sidecar)))


def sidecars(value):
    """Returns every container called sidecar below a value."""
    if isinstance(value, dict):
        if value.get("name") == "sidecar" and "image" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from sidecars(each)


def known(sidecar):
    """Replaces labels whose values are known in a cluster alone."""
    for variable in sidecar["env"]:
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        if path.startswith("metadata.labels"):
            variable.pop("valueFrom")
            variable["value"] = "orders"
    return sidecar


def component(scratch, deployment, service):
    write_overlay(scratch, yaml.safe_dump_all([deployment, service]), [K8S / "components/sidecar"])
    return render(scratch)


def injected(objects):
    end = run("postern-k8s", "inject", stdin=yaml.safe_dump_all(objects))
    assert end.returncode == 0, end.stderr
    return list(yaml.safe_load_all(end.stdout))


def test_a_pod_with_the_config_map_equals_the_component_s(tmp_path):
    deployment, service = yaml.safe_load_all(SERVICE.read_text())
    # The context path is a label of the component's, an annotation of inject's.
    deployment["metadata"]["labels"]["postern/app-name"] = "own"
    rendered = component(tmp_path, copy.deepcopy(deployment), service)
    theirs = named(rendered, "Deployment", "orders")
    template = deployment["spec"]["template"]
    sources = theirs["spec"]["template"]["spec"]["initContainers"][0]["envFrom"]
    template["metadata"]["annotations"] = {"postern/config-map": sources[0]["configMapRef"]["name"]}
    mine = named(injected([deployment, service]), "Deployment", "orders")
    template = mine["spec"]["template"]
    template["metadata"].pop("annotations", None)
    # What follows from the pod is no setting of the ConfigMap.
    sidecar = mine["spec"]["template"]["spec"]["initContainers"][0]
    sidecar["env"].remove({"name": "POSTERN_UPSTREAM", "value": "http://127.0.0.1:3000"})
    for each in (mine, theirs):
        pod = each["spec"]["template"]["spec"]
        pod["volumes"].sort(key=lambda volume: volume["name"])
    assert mine == theirs
    moved = named(injected([deployment, service]), "Service", "orders")
    assert without_original(moved) == named(rendered, "Service", "orders")


def test_a_job_has_the_settings_of_the_component(tmp_path):
    job = yaml.safe_load((K8S / "examples/job/job.yaml").read_text())
    job["metadata"]["labels"]["postern/app-name"] = "own"
    (mine,) = injected([job])
    write_overlay(tmp_path, yaml.safe_dump(job), [K8S / "components/sidecar"])
    theirs = named(render(tmp_path), "Job", "month-end")
    own, other = (dict(pods([each]))["month-end"] for each in (mine, theirs))
    assert settings(own["initContainers"][0]) == settings(other["initContainers"][0])
    assert own["containers"] == other["containers"]


@pytest.mark.parametrize("overlay", ["overlays/dev", "overlays/prod", "examples/job"])
def test_lint_has_no_complaint_about_our_overlays(overlay):
    end = run("postern-k8s", "lint", stdin=yaml.safe_dump_all(render(K8S / overlay)))
    assert end.returncode == 0, end.stdout


def test_lint_finds_what_the_component_leaves_open(tmp_path):
    """The rows of docs/kubernetes/rollouts.md that render without an error."""
    deployment, service = yaml.safe_load_all(SERVICE.read_text())
    del service["metadata"]["labels"]
    rendered = component(tmp_path, deployment, service)
    end = run("postern-k8s", "lint", stdin=yaml.safe_dump_all(rendered))
    assert end.returncode == 78 and "leads past the sidecar" in end.stdout, end.stdout


ANNOTATIONS = json.loads((REPOSITORY / "tests/data/annotations.json").read_text())


@pytest.mark.parametrize("row", ANNOTATIONS, ids=lambda row: f"{row['annotation']}: {row['value']!r}")
def test_the_sidecar_accepts_what_inject_accepts(row, tmp_path):
    """And `inject` rejects, with the annotation's name, what the sidecar would end for."""
    metadata = {"labels": {"app": "web"}, "annotations": {row["annotation"]: row["value"]}}
    container = {"name": "web", "image": "web:1", "ports": [{"name": "web", "containerPort": 8000}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", **metadata, "labels": {"app": "web", "postern/sidecar": "true"}},
        "spec": {"containers": [container]},
    }
    end = run("postern-k8s", "inject", stdin=yaml.safe_dump(pod))
    name, raw = row["variable"], row["value"]
    if "error" in row:
        assert (end.returncode, end.stdout) == (78, "")
        assert row["annotation"] in end.stderr and row["error"] in end.stderr, end.stderr
        values = {"POSTERN_AUTH_SERVER": "http://a:1/auth", "POSTERN_APP_ID": "a", "POSTERN_APP_SECRET": "b"}
        if row["annotation"] == "postern/port":
            raw = f"http://127.0.0.1:{raw}"
        end = run("sidecar", "check", values=values | {name: raw})
        assert end.returncode == 78, end.stdout
        return
    (sidecar,) = sidecars(yaml.safe_load(end.stdout))
    values = Mounts(tmp_path).localised(known(sidecar))
    values = {key: value.replace("$$", "$") for key, value in values.items()}
    if row["annotation"] != "postern/port":
        assert values[name] == raw
    accepted("sidecar", values)


def pod_resources_errors(pod):
    """Returns what the API server rejects in the resources of a whole pod (KEP-2837)."""
    whole, errors = pod["resources"], []
    initial, running = pod.get("initContainers", []), list(pod["containers"])
    running += [each for each in initial if each.get("restartPolicy") == "Always"]
    for what in ["cpu", "memory"]:
        limit = amount(whole, "limits", what)
        aggregate = sum(requested(each, what) or 0 for each in running)
        # Init containers run beside the restartable ones that are before them.
        before = 0
        for each in initial:
            aggregate = max(aggregate, before + (requested(each, what) or 0))
            before += (requested(each, what) or 0) if each.get("restartPolicy") == "Always" else 0
        request = amount(whole, "requests", what)
        if request is None and limit is not None:
            request = aggregate if any(requested(each, what) is not None for each in running + initial) else limit
        if request is not None and aggregate > request:
            errors.append(f"{what}: the containers request {aggregate} of {request}")
        if None not in (request, limit) and request > limit:
            errors.append(f"{what}: requests {request} of {limit}")
        own = [amount(each.get("resources", {}), "limits", what) for each in running + initial]
        errors += [f"{what}: a limit of {each} above {limit}" for each in own if None not in (each, limit) and each > limit]
    return errors


def requested(container, what):
    resources = container.get("resources", {})
    request = amount(resources, "requests", what)
    return amount(resources, "limits", what) if request is None else request


def amount(resources, kind, what):
    quantity = resources.get(kind, {}).get(what)
    if quantity is None:
        return None
    number, unit = re.fullmatch(r"([0-9.]+)(|m|[KMG]i?)", str(quantity)).groups()
    factor = {"": 1, "m": Fraction(1, 1000), "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[unit]
    return Fraction(number) * factor


def test_resources_of_whole_pods_hold_the_sidecar_s():
    before, after = (
        list(yaml.safe_load_all((REPOSITORY / f"tests/data/inject/{each}/pod-resources.yaml").read_text())) for each in ["in", "out"]
    )
    for one, other in zip(before, after, strict=True):
        pod, changed = (each["spec"].get("template", each)["spec"] for each in (one, other))
        assert pod_resources_errors(pod) == pod_resources_errors(changed) == [], one["metadata"]
        (sidecar,) = sidecars(changed)
        pod["initContainers"] = [sidecar, *pod.get("initContainers", [])]
        assert pod_resources_errors(pod) or one["metadata"]["name"] != "both", "which the API server rejects"
        for what in ["cpu", "memory"]:
            whole = pod["resources"]
            # None of these is left to the sum of the containers' requests.
            if one["metadata"]["name"] != "shared" or what in whole.get("requests", {}):
                request = amount(whole, "requests", what) or amount(whole, "limits", what)
                raised = amount(changed["resources"], "requests", what) - request - requested(sidecar, what)
                assert 0 <= raised < 2**20, "rounded up"


@pytest.mark.parametrize("headers", ["X-Uid=sub", "X-Mail=email, X-Uid=sub"])
def test_a_probe_with_a_header_about_the_user_is_left_alone(headers, tmp_path):
    (deployment,) = yaml.safe_load_all((REPOSITORY / "tests/data/inject/in/probe-headers.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probe = {"httpGet": {"path": "/up", "port": "http", "httpHeaders": [{"name": "x_uid", "value": "7"}]}}
    container["startupProbe"] = probe
    end = run("postern-k8s", "inject", "--set", f"POSTERN_CLAIM_HEADER={headers}", stdin=yaml.safe_dump(deployment))
    assert end.returncode == 0 and "'x_uid' names the user" in end.stderr, end.stderr
    injected = yaml.safe_load(end.stdout)
    assert injected["spec"]["template"]["spec"]["containers"][0]["startupProbe"] == probe
    (sidecar,) = sidecars(injected)
    accepted("sidecar", Mounts(tmp_path).localised(known(sidecar)))
