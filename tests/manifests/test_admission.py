"""The policies for the API server in examples/admission, checked and evaluated as the server does."""

import copy

import cel
import pytest
from kubernetes import K8S, directories, named, of_kind, render
from test_chart import SHAPES, template
from test_foreign_pods import HTTP, METRICS, deployment_with, label_on_pods_alone, laid_over, service, service_with

POLICIES = of_kind(render(K8S / "examples/admission"), "ValidatingAdmissionPolicy")
RESOURCES = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets", "ReplicaSet": "replicasets"}
RESOURCES |= {"Job": "jobs", "CronJob": "cronjobs", "Pod": "pods", "Service": "services"}


def rejections(thing):
    """Returns the message of every policy that rejects this object."""
    return [
        validation["message"]
        for policy in POLICIES
        if any(RESOURCES.get(thing["kind"]) in rule["resources"] for rule in policy["spec"]["matchConstraints"]["resourceRules"])
        for validation, is_met in zip(policy["spec"]["validations"], evaluated(policy, thing))
        if not is_met
    ]


def evaluated(policy, thing):
    """Returns the value of each validation of a policy."""
    expressions = [validation["expression"] for validation in policy["spec"]["validations"]]
    return cel.evaluate(cel.OF_POLICIES, expressions, {"object": thing}, policy["spec"]["variables"])


def expressions(value):
    """Returns everything below an object that is an expression by its name."""
    if isinstance(value, list):
        return [found for each in value for found in expressions(each)]
    if not isinstance(value, dict):
        return []
    own = [member for name, member in value.items() if name.lower().endswith("expression") and isinstance(member, str)]
    return own + [found for each in value.values() for found in expressions(each)]


CHECKED = {"ValidatingAdmissionPolicy": cel.errors_of_policy, "MutatingWebhookConfiguration": cel.errors_of_webhooks}


def every_object():
    """Returns the objects of every overlay and example, and of the chart in each shape."""
    trees = [render(directory) for directory in directories("Kustomization")]
    charts = [template(*flags) for flags in SHAPES.values()]
    return [each for found in [*trees, *charts] for each in found]


def test_the_api_server_accepts_every_expression():
    checked = 0
    for each in every_object():
        if each["kind"] in CHECKED:
            assert CHECKED[each["kind"]](each) == [], each["metadata"]["name"]
            checked += len(expressions(each))
        else:
            assert not expressions(each), f"{each['kind']}: nothing checks these"
    assert checked > 20


def changed(policy, change):
    other = copy.deepcopy(policy)
    change(other["spec"])
    return other


def two_types(spec):
    spec["variables"].append({"name": "none", "expression": "{}"})
    spec["validations"].append({"expression": "[variables.selector, variables.none].all(l, true)"})


MISTAKES = {
    "a list of two types": (two_types, "same type"),
    "a variable before its own": (lambda spec: spec["variables"].reverse(), "nknown variable"),
    "an unknown function": (lambda spec: spec["validations"].append({"expression": "isSafe(object)"}), "no matching overload"),
    "a value that is no verdict": (lambda spec: spec["validations"].append({"expression": "object.spec.size() + 1"}), "is int"),
    "a message that is no text": (lambda spec: spec["validations"][0].update(messageExpression="1 + 1"), "is int"),
    "a note that is no text": (lambda spec: spec.update(auditAnnotations=[{"valueExpression": "1 + 1"}]), "is int"),
    "a condition on a variable": (lambda spec: spec.update(matchConditions=[{"expression": "variables.labels == {}"}]), "variables"),
    "a word that is left open": (lambda spec: spec["validations"].append({"expression": "object.spec == 'a"}), "nterminated"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_policy_is_found(mistake):
    change, said = MISTAKES[mistake]
    policy = named(POLICIES, "ValidatingAdmissionPolicy", "postern-sidecar-services")
    found = cel.errors_of_policy(changed(policy, change))
    assert any(said in error for error in found), found


@pytest.mark.parametrize("directory", ["overlays/dev", "overlays/prod", "examples/job"])
def test_what_is_shipped_is_let_in(directory):
    for each in render(K8S / directory):
        assert rejections(each) == [], each["metadata"]["name"]


@pytest.mark.parametrize("variant", ["sidecar", "sidecar-plain"])
def test_what_a_component_makes_is_let_in_and_so_are_its_pods(variant, tmp_path):
    objects = laid_over(variant, tmp_path, service())
    deployment = named(objects, "Deployment", "orders")
    pod = {"kind": "Pod", **deployment["spec"]["template"]}
    for each in [*objects, pod, cron_job(deployment)]:
        assert rejections(each) == [], each


def cron_job(workload):
    return {"kind": "CronJob", "metadata": workload["metadata"], "spec": {"jobTemplate": {"spec": workload["spec"]}}}


def bare(kind):
    deployment, _ = service()
    if kind == "CronJob":
        return cron_job(deployment)
    if kind == "Pod":
        return {"kind": "Pod", **label_on(deployment["spec"]["template"])}
    return {**deployment, "kind": kind}


def label_on(template):
    template["metadata"]["labels"] = {**template["metadata"]["labels"], "postern/sidecar": "true"}
    return template


def unlabelled():
    _, its_service = service()
    del its_service["metadata"]["labels"]
    return its_service


def taken_port(scratch):
    deployment, its_service = service()
    deployment["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 18080}]
    return named(laid_over("sidecar", scratch, [deployment, its_service]), "Deployment", "orders")


def labelled_true():
    deployment, _ = service()
    deployment["metadata"]["labels"]["postern/sidecar"] = "True"
    return deployment


def other_sidecar():
    deployment, _ = service()
    deployment["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "sidecar", "containerPort": 3000}]
    return deployment


def cron_job_with_labelled_pods():
    deployment, _ = deployment_with(label_on_pods_alone)()
    return cron_job(deployment)


def middle_port(scratch):
    ports = [HTTP, METRICS, {"name": "web", "port": 81, "targetPort": 18080}]
    return named(laid_over("sidecar", scratch, service_with(*ports)()), "Service", "orders")


def second_service(scratch):
    deployment, its_service = service()
    other = {**unlabelled(), "metadata": {"name": "orders-direct"}}
    return named(laid_over("sidecar", scratch, [deployment, its_service, other]), "Service", "orders-direct")


NO_SIDECAR = "has no sidecar"
GAPS = {
    **{f"a {kind} without the component": (lambda kind=kind: bare(kind), NO_SIDECAR) for kind in RESOURCES if kind != "Service"},
    "the label on the pods alone": (lambda: deployment_with(label_on_pods_alone)()[0], NO_SIDECAR),
    "a label that means nothing": (labelled_true, "neither"),
    "a port that is merely called sidecar": (other_sidecar, NO_SIDECAR),
    "a CronJob with labelled pods": (cron_job_with_labelled_pods, NO_SIDECAR),
    "a Service without the label": (unlabelled, "label it postern/sidecar"),
    "a Service past the sidecar": (lambda: service()[1], "leads past the sidecar"),
    "a second port": (lambda: service_with({**HTTP, "targetPort": 18080}, METRICS)()[1], "leads past the sidecar"),
    "a port without a target": (lambda: service_with({"port": 80})()[1], "leads past the sidecar"),
    "a port by name": (lambda: service_with({"port": 80, "targetPort": "http"})()[1], "leads past the sidecar"),
}


@pytest.mark.parametrize("gap", GAPS)
def test_what_kustomize_cannot_see_is_rejected(gap):
    make, said = GAPS[gap]
    assert any(said in message for message in rejections(make())), rejections(make())


@pytest.mark.parametrize(
    "render_it, said",
    [(taken_port, "18080 and 18081"), (middle_port, "leads past the sidecar"), (second_service, "label it postern/sidecar")],
)
def test_what_a_component_lets_pass_is_rejected(render_it, said, tmp_path):
    (message,) = rejections(render_it(tmp_path))
    assert said in message


@pytest.mark.parametrize("label", ["false", None])
def test_other_workloads_are_accepted(label):
    deployment, its_service = service()
    for each in deployment, its_service:
        each["metadata"]["labels"] = {"postern/sidecar": label} if label else {}
    assert rejections(deployment) == []
    assert (rejections(its_service) == []) == (label == "false")
    external = {"kind": "Service", "metadata": {"name": "db"}, "spec": {"type": "ExternalName", "externalName": "db.example.com"}}
    assert rejections(external) == []


def test_each_policy_is_bound_to_guarded_namespaces():
    bound = {}
    for binding in of_kind(render(K8S / "examples/admission"), "ValidatingAdmissionPolicyBinding"):
        assert binding["spec"]["validationActions"] == ["Deny"]
        selector = binding["spec"]["matchResources"]["namespaceSelector"]
        assert selector["matchLabels"] == {"postern/guarded": "true"}
        # There workloads have no sidecar, and their pods get one.
        of_webhook = {"key": "postern/inject", "operator": "NotIn", "values": ["enabled"]}
        is_of_workloads = binding["metadata"]["name"].endswith(("workloads", "cronjobs"))
        assert selector.get("matchExpressions", []) == ([of_webhook] if is_of_workloads else [])
        bound[binding["spec"]["policyName"]] = binding
    assert set(bound) == {policy["metadata"]["name"] for policy in POLICIES}
