"""The objects of the Prometheus operator: those of deploy/prometheus, with links that resolve."""

import os
import re

import pytest
import yaml
from kubernetes import DOCUMENT, K8S, REPOSITORY, containers, named, of_kind, render, write_overlay

RULES = (REPOSITORY / "deploy/prometheus/postern.rules.yml").read_text()
RULES_OBJECT = K8S / "components/prometheusrule/prometheusrule.yaml"
HEAD = """\
# Made of deploy/prometheus/postern.rules.yml: with POSTERN_UPDATE_DOCS=1 tests/manifests writes it again.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: postern
  labels:
    app.kubernetes.io/name: postern
    app.kubernetes.io/instance: postern
    app.kubernetes.io/version: VERSION
    app.kubernetes.io/component: alerts
    app.kubernetes.io/part-of: postern
    app.kubernetes.io/managed-by: kustomize
spec:
"""
ALERTS = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]


def version():
    return re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]


def rendered(scratch, patches=(), more=None):
    components = [K8S / "components" / name for name in ["podmonitor", "prometheusrule"]]
    write_overlay(scratch, "", components, [K8S / "overlays/prod"], patches, more)
    return render(scratch)


def test_the_alerts_of_the_operator_are_those_of_the_file():
    groups = RULES[RULES.index("groups:"):]
    expected = HEAD.replace("VERSION", version()) + re.sub(r"^(?=.)", "  ", groups, flags=re.M)
    if os.environ.get("POSTERN_UPDATE_DOCS"):
        RULES_OBJECT.write_text(expected)
    assert RULES_OBJECT.read_text() == expected, "POSTERN_UPDATE_DOCS=1 writes it again"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_each_alert_leads_to_a_part_of_a_document(alert):
    document, _, heading = alert["annotations"]["runbook_url"].removeprefix("https://postern.example.com/").partition("#")
    titles = re.findall(r"^#+ (.*)$", (REPOSITORY / document).read_text(), re.M)
    # GitHub's name of a heading.
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert heading in anchors, alert["annotations"]["runbook_url"]


def test_the_runbooks_are_moved_by_the_example_of_the_document(tmp_path):
    blocks = [yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.M | re.S)]
    (block,) = [each for each in blocks if "replacements" in each]
    objects = rendered(tmp_path, more=block)
    rule = named(objects, "PrometheusRule", "postern")
    assert "documents" not in {each["metadata"]["name"] for each in objects}, "it is not for the cluster"
    urls = [each["annotations"]["runbook_url"] for group in rule["spec"]["groups"] for each in group["rules"]]
    assert len(urls) == len(ALERTS) and all(url.startswith("https://git.example.org/docs/") for url in urls), urls


def test_the_monitors_name_ports_that_exist(tmp_path):
    objects = rendered(tmp_path)
    monitors = of_kind(objects, "PodMonitor")
    assert len(monitors) == 2
    for monitor in monitors:
        labels = monitor["spec"]["selector"]["matchLabels"]
        pods_of = [
            w["spec"]["template"]["spec"]
            for w in of_kind(objects, "Deployment")
            if labels.items() <= w["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert pods_of, labels
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            names = {port["name"] for pod in pods_of for c in containers(pod) for port in c.get("ports", [])}
            assert endpoint["port"] in names and endpoint["path"] == "/metrics"


def test_the_dashboard_of_the_component_equals_the_file(tmp_path):
    dashboard, copy = REPOSITORY / "deploy/grafana/postern.json", K8S / "components/grafana/postern.json"
    if os.environ.get("POSTERN_UPDATE_DOCS"):
        copy.write_text(dashboard.read_text())
    assert copy.read_text() == dashboard.read_text(), "POSTERN_UPDATE_DOCS=1 writes it again"
    write_overlay(tmp_path, "", [K8S / "components/grafana"], [K8S / "overlays/prod"])
    found = named(render(tmp_path), "ConfigMap", "postern-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"]["postern.json"] == dashboard.read_text()


@pytest.mark.parametrize("overlay", ["dev", "prod"])
def test_an_overlay_needs_no_operator(overlay):
    kinds = {each["apiVersion"].partition("/")[0] for each in render(K8S / "overlays" / overlay)}
    assert "monitoring.coreos.com" not in kinds
