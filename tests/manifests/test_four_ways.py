"""One workload, four ways to its sidecar: they make the same pod, and the same Service."""

import base64
import copy
import json
import ssl
import subprocess
import urllib.request
from contextlib import contextmanager

import kubernetes_validate
import pytest
import yaml
from cluster import empty
from kubernetes import K8S, REPOSITORY, SERVICE, VERSIONS, assert_restricted, named, render, settings, without_original, write_overlay
from programs import Mounts, environment, path, run
from test_inject import flat, sidecars

OF_THE_COMPONENT = "POSTERN_AUTH_SERVER=http://auth:9000/auth"
CHART = ["helm", "template", "postern", K8S / "chart", "--namespace", "postern", "--set", "authServer.users=builtin"]


def objects():
    """Returns a Deployment and its Service; its context path is a label here and an annotation there."""
    deployment, service = yaml.safe_load_all(SERVICE.read_text())
    deployment["metadata"]["labels"]["postern/app-name"] = "own"
    return deployment, service


def by_component(scratch):
    write_overlay(scratch, yaml.safe_dump_all(objects()), [K8S / "components/sidecar"])
    return render(scratch)


def by_inject(_):
    end = run("postern-k8s", "inject", stdin=yaml.safe_dump_all(objects()))
    assert end.returncode == 0, end.stderr
    return list(yaml.safe_load_all(end.stdout))


def by_webhook(scratch):
    return reviewed(scratch, [])


def by_chart(scratch):
    """The webhook with the arguments that the chart gives it."""
    key = ["--set", f"webhook.settings.{OF_THE_COMPONENT}"]
    end = subprocess.run([*CHART, *key, *empty().flags()], capture_output=True, text=True)
    assert end.returncode == 0, end.stderr
    deployment = named(list(filter(None, yaml.safe_load_all(end.stdout))), "Deployment", "postern-webhook")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return reviewed(scratch, [word for word in container["args"][1:] if not word.startswith(("--tls-", "--log-"))])


def reviewed(scratch, flags):
    """Returns the Service, and the Deployment with the pod that is made of it: both are reviewed."""
    with webhook(scratch, flags) as address:
        deployment, service = (stored(address, scratch / "tls.crt", each) for each in objects())
        template = deployment["spec"]["template"]
        template |= stored(address, scratch / "tls.crt", {"apiVersion": "v1", "kind": "Pod", **template})
        for member in ["apiVersion", "kind"]:
            del template[member]
        return [deployment, service]


@contextmanager
def webhook(scratch, flags):
    Mounts.certificate(scratch)
    tls = ["--tls-cert", scratch / "tls.crt", "--tls-key", scratch / "tls.key"]
    listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    command = [path("postern-k8s"), "webhook", *listen, *tls, *flags]
    process = subprocess.Popen(command, env=environment({}), stdout=subprocess.PIPE, text=True)
    try:
        lines = (line.strip() for line in process.stdout)
        yield next(line for line in lines if line.startswith("listening on ")).rpartition(" ")[2]
    finally:
        process.terminate()
        process.terminate()
        process.wait(timeout=30)


def stored(address, authority, thing, must_be=True):
    """Returns an object as an API server stores it after the review."""
    request = {"uid": "1", "operation": "CREATE", "object": thing}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    trust = ssl.create_default_context(cafile=authority)
    trust.check_hostname = False
    sent = urllib.request.Request(f"https://{address}/mutate", json.dumps(review).encode())
    response = json.load(urllib.request.urlopen(sent, context=trust, timeout=30))["response"]
    assert response["allowed"] or not must_be, response
    if not response["allowed"]:
        return None
    changed = copy.deepcopy(thing)
    for operation in json.loads(base64.b64decode(response.get("patch", "W10="))):
        apply(changed, operation)
    return changed


EXAMPLES = sorted((REPOSITORY / "tests/data/inject/in").glob("*.yaml"))


def reviewed_examples(address, authority):
    """Returns what is stored of each object, and of the pod that it describes."""
    for example in EXAMPLES:
        for thing in flat(each for each in yaml.safe_load_all(example.read_text()) if each):
            thing = None if "argoproj" in thing["apiVersion"] else stored(address, authority, thing, must_be=False)
            if thing is None:
                continue
            yield thing
            spec = thing.get("spec", {})
            template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
            if template and template["metadata"].get("labels", {}).get("postern/sidecar") == "true":
                metadata = {**template["metadata"], "generateName": "pod-"}
                yield stored(address, authority, {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})


def test_what_the_webhook_patches_is_valid_and_restricted(tmp_path):
    found = 0
    with webhook(tmp_path, []) as address:
        for thing in reviewed_examples(address, tmp_path / "tls.crt"):
            # The oldest does not know resources of a pod.
            for version in (VERSIONS[-1],) if has_resources(thing) else (VERSIONS[0], VERSIONS[-1]):
                kubernetes_validate.validate(thing, version, strict=True)
            if thing["kind"] == "Pod":
                for container in sidecars(thing):
                    found += 1
                    assigned = thing["metadata"].get("annotations", {}).get("postern/run-as-user") == ""
                    assert_restricted(thing["metadata"], {}, container, assigned)
    assert found > 5


def has_resources(thing):
    """Returns true for an object whose pod has resources as a whole."""
    return "resources" in thing.get("spec", {}).get("template", thing).get("spec", {})


def apply(thing, operation):
    thing[operation["path"].removeprefix("/")] = operation["value"]


def comparable(found):
    """Returns pod and Service; where a setting stands makes no difference to the sidecar."""
    pod = named(found, "Deployment", "orders")["spec"]["template"]
    (sidecar,) = pod["spec"]["initContainers"]
    values = settings(sidecar)
    sidecar.pop("envFrom", None)
    sidecar["env"] = values
    pod["spec"]["volumes"].sort(key=lambda volume: volume["name"])
    # What the webhook has found in the workload.
    pod["metadata"].get("annotations", {}).pop("postern/port", None)
    if not pod["metadata"].get("annotations", True):
        del pod["metadata"]["annotations"]
    return without_original(pod), without_original(named(found, "Service", "orders"))


@pytest.mark.parametrize("way", [by_inject, by_webhook, by_chart])
def test_each_way_makes_the_pod_and_the_service_of_the_component(way, tmp_path):
    for name in ["component", "other"]:
        (tmp_path / name).mkdir()
    theirs = comparable(by_component(tmp_path / "component"))
    assert comparable(way(tmp_path / "other")) == theirs
    pod, service = theirs
    (sidecar,) = pod["spec"]["initContainers"]
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    assert sidecar["env"]["POSTERN_LISTEN"] == f"[::]:{ports['sidecar']}"
    assert sidecar["env"]["POSTERN_ADMIN_LISTEN"] == f"[::]:{ports['sidecar-admin']}"
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [ports["sidecar"]]
    policy = yaml.safe_load((K8S / "components/networkpolicy/networkpolicy.yaml").read_text())
    opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert opened == set(ports.values()), "every way to a pod leads to its sidecar"
