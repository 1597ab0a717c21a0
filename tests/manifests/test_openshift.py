"""OpenShift: its default policy accepts every pod of ours, installed as docs/kubernetes/openshift.md says."""

import os
import re
import subprocess

import pytest
import yaml
from cluster import empty
from kubernetes import K8S, REPOSITORY, assert_restricted, containers, named, pods, program, reads, render, write_overlay
from openshift import RANGE, assigned, rejections
from programs import check_with_secret, run
from test_chart import REDIS, SHAPES, template
from test_four_ways import stored, webhook
from test_inject import flat

PAGE = (REPOSITORY / "docs/kubernetes/openshift.md").read_text()
NO_USER = ["--set", "runAsUser=null"]
# Services whose authors fix no user either.
SERVICES = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: web-{lower}, labels: {{postern/sidecar: "true"}}}}
spec:
  template:
    metadata: {{labels: {{app.kubernetes.io/name: web}}}}
    spec:
      containers: [{{name: web, image: "registry.example.com/web:1.0.0"}}]
"""


def services():
    return "---".join(SERVICES.format(kind=kind, lower=kind.lower()) for kind in ["Deployment", "StatefulSet", "DaemonSet"])


def accepted_and_restricted(found):
    """Asserts that each pod is created, and that our containers are as restricted as elsewhere."""
    assert found
    for where, pod in found:
        assert rejections(pod) == [], where
        pod = assigned(pod)
        secrets = {volume["name"]: volume["secret"] for volume in pod.get("volumes", []) if "secret" in volume}
        for container in containers(pod):
            if container["name"] == "web":
                continue
            assert_restricted(where, pod, container)
            for mount in container.get("volumeMounts", []):
                assert mount["name"] not in secrets or reads(pod, container, secrets[mount["name"]]), mount


@pytest.mark.parametrize("shape", SHAPES)
def test_the_pods_of_the_chart_are_created_without_a_user(shape):
    accepted_and_restricted(pods(template(*SHAPES[shape], *NO_USER)))
    assert all(rejections(pod) for _, pod in pods(template(*SHAPES[shape]))), "which the policy rejects"


def test_the_chart_has_any_user():
    for _, pod in pods(template(*SHAPES["production"], "--set", f"runAsUser={RANGE[0]}")):
        security = pod["securityContext"]
        assert {security["runAsUser"], security["runAsGroup"], security["fsGroup"]} == {RANGE[0]}
    end = subprocess.run(["helm", "template", K8S / "chart", "--set", "runAsUser=0", *empty().flags()], capture_output=True, text=True)
    assert end.returncode != 0 and "runAsUser" in end.stderr, end.stderr


def with_components(scratch, *components):
    resources = [K8S / "base/auth-server", K8S / "examples/application", scratch / "service"]
    write_overlay(scratch, services(), [K8S / "components" / name for name in components], resources)
    return render(scratch)


@pytest.mark.parametrize("store", [[], ["replicated"], ["redis"]], ids=str)
def test_the_component_takes_the_users_away(store, tmp_path):
    every = [*store, "sidecar", "networkpolicy"]
    found = pods(with_components(tmp_path, *every, "openshift"))
    ours = {each["name"] for _, pod in found for each in containers(pod)}
    assert {"auth-server", "register", "sidecar"} | ({"redis"} if "redis" in store else set()) <= ours
    accepted_and_restricted(found)
    assert all(rejections(pod) for _, pod in pods(with_components(tmp_path, *every))), "which the policy rejects"


def injected(*flags):
    end = run("postern-k8s", "inject", *flags, stdin=services())
    assert end.returncode == 0, end.stderr
    return list(yaml.safe_load_all(end.stdout))


def test_inject_leaves_the_user_to_the_cluster():
    accepted_and_restricted(pods(injected("--run-as-user", "")))
    assert all(rejections(pod) for _, pod in pods(injected())), "which the policy rejects"
    example = yaml.safe_load_all((REPOSITORY / "tests/data/inject/out/openshift.yaml").read_text())
    for _, pod in pods(flat(each for each in example if each)):
        assert rejections(pod) == []


def test_the_webhook_of_the_chart_leaves_the_user_to_the_cluster(tmp_path):
    container = named(template(*NO_USER), "Deployment", "postern-webhook")["spec"]["template"]["spec"]["containers"][0]
    flags = [word for word in container["args"][1:] if not word.startswith(("--tls-", "--log-"))]
    deployment = next(yaml.safe_load_all(services()))
    metadata = {"name": "web", "labels": {"app": "web", "postern/sidecar": "true"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deployment["spec"]["template"]["spec"]}
    with webhook(tmp_path, flags) as address:
        made = stored(address, tmp_path / "tls.crt", pod)["spec"]
    assert [each["name"] for each in made["initContainers"]] == ["sidecar"]
    accepted_and_restricted([("web", made)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("group, readable", [(RANGE[0], True), (RANGE[1], False)])
def test_an_assigned_user_reads_its_secret(group, readable):
    """The group of a mounted secret is the pod's fsGroup, which its containers have beside their own."""
    (pod,) = [pod for where, pod in pods(injected("--run-as-user", "")) if where == "web-deployment"]
    (identity,) = [each["securityContext"] for each in containers(assigned(pod)) if program(each) == "sidecar"]
    end = check_with_secret(identity, RANGE[0], owner=0, group=group, mode=0o440)
    assert (end.returncode == 0) == readable, end.stderr


def test_the_lines_of_the_page_are_ours():
    (line,) = [line for line in PAGE.splitlines() if line.startswith("helm install ")]
    command = line.rstrip(" &\\").replace("helm install", "helm template", 1).split()
    end = subprocess.run([*command, *empty().flags()], cwd=REPOSITORY, capture_output=True, text=True)
    assert end.returncode == 0, end.stderr
    accepted_and_restricted(pods([each for each in yaml.safe_load_all(end.stdout) if each]))
    (listed,) = re.findall(r"`components: \[(.*)\]`", PAGE)
    assert listed.split(", ")[-1] == "../../components/openshift"
    assert (K8S / "overlays/dev" / "../../components/openshift/kustomization.yaml").is_file()
    assert "postern-k8s inject --run-as-user ''" in PAGE
