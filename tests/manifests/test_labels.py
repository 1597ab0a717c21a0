"""Labels, selectors and reachability of our objects."""

import re

import pytest
from kubernetes import K8S, REPOSITORY, SERVICE, containers, of_kind, program, render, write_overlay

RECOMMENDED = {f"app.kubernetes.io/{name}" for name in ["name", "instance", "version", "component", "part-of", "managed-by"]}
OVERLAYS = {
    "alone": ["sidecar", "networkpolicy", "podmonitor", "prometheusrule", "grafana"],
    "plain": ["sidecar-plain"],
    "replicated": ["replicated"],
    "redis": ["redis"],
}


@pytest.fixture(scope="module", params=OVERLAYS)
def objects(request, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("labels")
    components = [K8S / "components" / name for name in OVERLAYS[request.param]]
    write_overlay(scratch, SERVICE.read_text(), components, [K8S / "base/auth-server", scratch / "service"])
    return [each for each in render(scratch) if each["metadata"]["name"] != "orders"]


def labels(each):
    return each["metadata"].get("labels", {})


def version():
    return re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]


def test_every_object_has_the_recommended_labels(objects):
    for each in objects:
        what = f"{each['kind']} {each['metadata']['name']}"
        assert RECOMMENDED <= set(labels(each)), what
        assert labels(each)["app.kubernetes.io/part-of"] == "postern", what
        if labels(each)["app.kubernetes.io/name"] != "auth-redis":
            assert labels(each)["app.kubernetes.io/version"] == version(), what


def test_pods_have_them_too_and_the_version_is_the_images(objects):
    for each in of_kind(objects, "Deployment"):
        template = each["spec"]["template"]
        assert labels(template) == labels(each)
        for container in containers(template["spec"]):
            tag = container["image"].rpartition(":")[2]
            assert tag.startswith(labels(template)["app.kubernetes.io/version"]), container["image"]
            assert program(container) is None or container["image"].startswith("localhost/postern/")


def selectors(node):
    """Yields every set of labels that selects objects."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "matchLabels":
                yield value
            elif key == "selector" and "matchLabels" not in value:
                yield value
            yield from selectors(value)
    if isinstance(node, list):
        for each in node:
            yield from selectors(each)


def test_nothing_is_selected_by_a_name_that_others_may_have(objects):
    for each in objects:
        for selector in selectors(each["spec"] if "spec" in each else {}):
            if "app.kubernetes.io/name" in selector:
                assert selector["app.kubernetes.io/part-of"] == "postern", each["metadata"]["name"]
            assert not {"app.kubernetes.io/version", "app.kubernetes.io/instance"} & set(selector), "it changes"


def test_a_pod_reaches_a_public_port_from_its_first_moment_on(objects):
    """A policy engine learns the address of a new pod too late for its first fetch of the key."""
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"]["ingress"]:
            if {port["port"] for port in rule["ports"]} & {"http", 18080}:
                assert "from" not in rule, policy["metadata"]["name"]


def test_the_admin_ports_and_the_store_are_not_open_to_all(objects):
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"]["ingress"]:
            if not {port["port"] for port in rule["ports"]} & {"http", 18080}:
                assert rule["from"], policy["metadata"]["name"]
