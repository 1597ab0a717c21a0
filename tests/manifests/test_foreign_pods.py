"""Components over workloads of others: these stay unchanged, or are rejected."""

import os
import re
import subprocess

import kubernetes_validate
import pytest
import yaml
from kubernetes import (
    CONFIG_MAPS,
    DOCUMENT,
    K8S,
    REPOSITORY,
    SERVICE,
    VERSIONS,
    containers,
    kustomize,
    named,
    ours,
    program,
    reads,
    render,
    settings,
    write_overlay,
)
from programs import Mounts, accepted, check_with_secret

VARIANTS = {"sidecar": "initContainers", "sidecar-plain": "containers"}


def service():
    """Returns Deployment and Service of tests/manifests/service.yaml."""
    return list(yaml.safe_load_all(SERVICE.read_text()))


def demanding():
    """Returns a Deployment that sets every field that a component could overwrite."""
    deployment, its_service = service()
    deployment["metadata"]["labels"]["postern/lifecycle"] = "own"
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"] = {"example.com/reviewed": "yes"}
    pod = template["spec"]
    pod |= {
        "enableServiceLinks": True,
        "terminationGracePeriodSeconds": 300,
        "securityContext": {"fsGroup": 999, "fsGroupChangePolicy": "Always", "supplementalGroups": [7]},
        "serviceAccountName": "orders",
        "shareProcessNamespace": False,
        "volumes": [{"name": "postern", "emptyDir": {}}, {"name": "cache", "emptyDir": {}}],
        "initContainers": [{"name": "migrate", "image": "registry.example.com/migrate:1.4.2"}],
    }
    pod["containers"][0] |= {
        "lifecycle": {"preStop": {"exec": {"command": ["/finish"]}}},
        "volumeMounts": [{"name": "postern", "mountPath": "/secrets/postern"}],
        "env": [{"name": "POSTERN_LAME_DUCK", "value": "a variable of the service"}],
    }
    pod["containers"].append({"name": "shipper", "image": "registry.example.com/shipper:2.0.0"})
    return deployment, its_service


def laid_over(variant, scratch, objects, **more):
    write_overlay(scratch, yaml.safe_dump_all(objects), [K8S / "components" / variant], **more)
    return render(scratch)


def sidecar_of(pod, variant):
    (found,) = [each for each in pod[VARIANTS[variant]] if each["name"] == "sidecar"]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_of_a_pod_is_changed_beside_the_sidecar(variant, tmp_path):
    before, _ = demanding()
    after = named(laid_over(variant, tmp_path, demanding()), "Deployment", "orders")
    assert after["metadata"] == before["metadata"]
    assert after["spec"]["template"]["metadata"]["labels"].pop("postern/sidecar") == "true"
    pod = after["spec"]["template"]["spec"]
    pod[VARIANTS[variant]].remove(sidecar_of(pod, variant))
    pod["volumes"] = [volume for volume in pod["volumes"] if not volume["name"].startswith("postern-sidecar-")]
    assert after == before


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("group", [None, 999])
def test_the_secret_is_read_whatever_the_group_of_the_volumes_is(variant, group, tmp_path):
    deployment, its_service = service()
    if group:
        deployment["spec"]["template"]["spec"]["securityContext"] = {"fsGroup": group}
    objects = laid_over(variant, tmp_path, [deployment, its_service])
    pod = named(objects, "Deployment", "orders")["spec"]["template"]["spec"]
    (secret,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    assert reads(pod, sidecar_of(pod, variant), secret)
    mounts = [mount["name"] for each in containers(pod) if each["name"] != "sidecar" for mount in each.get("volumeMounts", [])]
    assert not any(name.startswith("postern-sidecar-") for name in mounts), "others read it too"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("owner, mode, readable", [(0, 0o440, True), (999, 0o440, True), (0, 0o444, False)])
def test_a_mounted_secret_is_read_and_a_public_one_is_not(owner, mode, readable):
    patch = yaml.safe_load((K8S / "components/sidecar/sidecar.yaml").read_text())
    identity = sidecar_of(patch["spec"]["template"]["spec"], "sidecar")["securityContext"]
    end = check_with_secret(identity, 999, owner=0, group=owner, mode=mode)
    assert (end.returncode == 0) == readable, end.stderr


def defaults(variant, scratch):
    pod = named(laid_over(variant, scratch, service()), "Deployment", "orders")["spec"]["template"]["spec"]
    (source,) = sidecar_of(pod, variant)["envFrom"]
    return CONFIG_MAPS[source["configMapRef"]["name"]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_component_sets_is_known_at_run_time_alone(variant):
    """Any other variable would replace the Deployment's own."""
    patch = yaml.safe_load((K8S / "components" / variant / "sidecar.yaml").read_text())
    # Services and policies depend on its ports.
    fixed = {"POSTERN_LISTEN", "POSTERN_ADMIN_LISTEN"}
    for variable in sidecar_of(patch["spec"]["template"]["spec"], variant)["env"]:
        assert "valueFrom" in variable or variable["name"] in fixed, variable


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_setting_of_the_deployment_counts_more(variant, tmp_path):
    own = {name: f"own {value}" for name, value in defaults(variant, tmp_path).items()}
    own |= {"POSTERN_AUTH_SERVER": "dns://auth.identity.svc:9000/auth", "POSTERN_PUBLIC_PATH": "/healthz"}
    deployment, its_service = service()
    variables = [{"name": name, "value": value} for name, value in own.items()]
    container = {"name": "sidecar", "env": variables}
    deployment["spec"]["template"]["spec"].setdefault(VARIANTS[variant], []).append(container)
    objects = laid_over(variant, tmp_path, [deployment, its_service])
    pod = named(objects, "Deployment", "orders")["spec"]["template"]["spec"]
    assert own.items() <= settings(sidecar_of(pod, variant)).items()


def test_both_variants_have_the_same_settings(tmp_path):
    (tmp_path / "plain").mkdir()
    assert defaults("sidecar", tmp_path) == defaults("sidecar-plain", tmp_path / "plain")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("own", [None, "shop"])
def test_a_label_names_the_root_or_the_path_of_a_service(variant, own, tmp_path):
    deployment, its_service = service()
    deployment["metadata"]["labels"]["postern/app-name"] = "own"
    if own:
        container = {"name": "sidecar", "env": [{"name": "POSTERN_APP_NAME", "value": own}]}
        deployment["spec"]["template"]["spec"].setdefault(VARIANTS[variant], []).append(container)
    objects = laid_over(variant, tmp_path, [deployment, its_service])
    values = settings(sidecar_of(named(objects, "Deployment", "orders")["spec"]["template"]["spec"], variant))
    assert (values.get("POSTERN_APP_NAME"), values["POSTERN_APP_ID"]) == (own, "orders")


def test_a_job_s_sidecar_does_not_wait_for_callers_at_its_end():
    job = named(render(K8S / "examples/job"), "Job", "month-end")["spec"]["template"]["spec"]
    assert settings(sidecar_of(job, "sidecar"))["POSTERN_LAME_DUCK"] == "0"
    assert "lifecycle" not in job["containers"][0]


def deployment_with(change):
    def changed():
        deployment, its_service = service()
        change(deployment)
        return [deployment, its_service]
    return changed


def service_with(*ports):
    def changed():
        deployment, its_service = service()
        its_service["spec"]["ports"] = list(ports)
        return [deployment, its_service]
    return changed


def of_kind(kind):
    def changed():
        deployment, _ = service()
        return [{**deployment, "kind": kind, "apiVersion": {"Pod": "v1", "ReplicationController": "v1"}.get(kind, "batch/v1")}]
    return changed


def own_lifecycle(deployment):
    deployment["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 1}}}


def label_on_pods_alone(deployment):
    del deployment["metadata"]["labels"]
    deployment["spec"]["template"]["metadata"]["labels"] = {"app.kubernetes.io/name": "orders", "postern/sidecar": "true"}


HTTP = {"name": "http", "port": 80, "targetPort": 3000}
METRICS = {"name": "metrics", "port": 9090, "targetPort": 9090}
REJECTED = {
    "a lifecycle of the service's own": (deployment_with(own_lifecycle), "containers/0/lifecycle"),
    "the label on the pods alone": (deployment_with(label_on_pods_alone), "labels/postern~1sidecar"),
    "a second port of a Service": (service_with(HTTP, METRICS), "/spec/ports/-1/targetPort"),
    "another port before the service's": (service_with(METRICS, HTTP), "/spec/ports/-1/targetPort"),
    "a CronJob": (of_kind("CronJob"), "no sidecar is put into this kind"),
    "a bare Pod": (of_kind("Pod"), "no sidecar is put into this kind"),
    "a ReplicaSet": (of_kind("ReplicaSet"), "no sidecar is put into this kind"),
    "a ReplicationController": (of_kind("ReplicationController"), "no sidecar is put into this kind"),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("what", REJECTED)
def test_what_would_seem_protected_and_not_be_is_rejected(variant, what, tmp_path):
    objects, said = REJECTED[what]
    write_overlay(tmp_path, yaml.safe_dump_all(objects()), [K8S / "components" / variant])
    end = kustomize(tmp_path)
    assert end.returncode != 0 and said in end.stderr, end.stdout or end.stderr


def test_the_plain_variant_rejects_a_job(tmp_path):
    write_overlay(tmp_path, yaml.safe_dump_all(of_kind("Job")()), [K8S / "components/sidecar-plain"])
    assert "no sidecar is put into this kind" in kustomize(tmp_path).stderr


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("target", [3000, "plain", None])
def test_a_service_of_one_port_is_moved_whatever_its_target(variant, target, tmp_path):
    deployment, its_service = service()
    its_service["spec"]["ports"] = [{"name": "http", "port": 80} | ({"targetPort": target} if target else {})]
    moved = named(laid_over(variant, tmp_path, [deployment, its_service]), "Service", "orders")
    assert moved["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": 18080}]


def examples(member):
    """Returns the YAML blocks of docs/kubernetes that hold this member."""
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.M | re.S)]
    return [block[member] for block in blocks if member in block]


# Istio's and Envoy Gateway's, beside ours.
FOREIGN = {"rules", "authorization"}


def test_every_yaml_block_of_the_documents_is_tried():
    tried = {"images", "initContainers", "patches", "replacements"}
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for page in listed.stdout.split():
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```", (REPOSITORY / page).read_text(), re.M | re.S):
            block = yaml.safe_load(block)
            if block.keys() == {"volumes"}:
                pod = {"containers": [{"name": "a", "image": "a"}], **block}
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod}
                kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)
            else:
                assert FOREIGN & block.keys() or (tried & block.keys() and "kubernetes" in page), f"{page}: {block}"


def with_everything(scratch, deployment=None, patches=(), more=None):
    ours, its_service = service()
    components = [K8S / "components" / name for name in ["sidecar", "networkpolicy"]]
    resources = [K8S / "base/auth-server", scratch / "service"]
    # The base leaves the users to its overlay.
    users = yaml.safe_load((K8S / "overlays/dev/kustomization.yaml").read_text())["patches"]
    patches = [*users, *patches]
    write_overlay(scratch, yaml.safe_dump_all([deployment or ours, its_service]), components, resources, patches, more)
    return render(scratch)


def test_the_images_of_the_document_replace_ours(tmp_path):
    (images,) = examples("images")
    found = {container["image"] for _, container in ours(with_everything(tmp_path, more={"images": images}))}
    assert found == {f"{image['newName']}:{image['newTag']}" for image in images}


@pytest.mark.parametrize("patches", examples("patches"), ids=str)
def test_every_patch_of_the_document_has_its_effect(patches, tmp_path):
    before, after = with_everything(tmp_path), with_everything(tmp_path, patches=patches)
    text = yaml.safe_dump_all(after)
    for word in re.findall(r"(?:value: |secretName: |_SERVER: )\"?(?!null)([^\s\",}]+)", "\n".join(each["patch"] for each in patches)):
        assert word in text and word not in yaml.safe_dump_all(before), word
    mounts = Mounts(tmp_path / "mounts")
    for _, container in ours(after):
        accepted(program(container), mounts.localised(container))


def test_without_an_application_secret_there_is_no_secret(tmp_path):
    (patches,) = [each for each in examples("patches") if "POSTERN_JWKS" in each[0]["patch"]]
    pod = named(with_everything(tmp_path, patches=patches), "Deployment", "orders")["spec"]["template"]["spec"]
    assert "jwks.json" in accepted("sidecar", Mounts(tmp_path).localised(sidecar_of(pod, "sidecar")))
    assert not [volume for volume in pod["volumes"] if "secret" in volume]


@pytest.mark.parametrize("block", examples("initContainers"), ids=str)
def test_the_document_has_the_sidecar_s_variables(block, tmp_path):
    deployment, _ = service()
    deployment["spec"]["template"]["spec"]["initContainers"] = block
    pod = named(with_everything(tmp_path, deployment), "Deployment", "orders")["spec"]["template"]["spec"]
    wanted = {variable["name"]: variable["value"] for variable in block[0]["env"]}
    assert wanted and wanted.items() <= settings(sidecar_of(pod, "sidecar")).items()
    accepted("sidecar", Mounts(tmp_path / "mounts").localised(sidecar_of(pod, "sidecar")))


def test_every_rejection_is_in_the_document():
    for _, said in REJECTED.values():
        assert f"| `{said}` |" in DOCUMENT, said


def test_what_the_component_overrides_is_in_the_document(tmp_path):
    """Kustomize merges by name: after a fix of Kustomize, the table there loses a row."""
    deployment, its_service = service()
    own = [{"name": name, "value": ""} for name in ["POSTERN_APP_NAME", "POSTERN_APP_ID"]]
    container = {"name": "sidecar", "env": own, "envFrom": [{"configMapRef": {"name": "own"}}]}
    deployment["spec"]["template"]["spec"]["initContainers"] = [container]
    objects = laid_over("sidecar", tmp_path, [deployment, its_service])
    found = sidecar_of(named(objects, "Deployment", "orders")["spec"]["template"]["spec"], "sidecar")
    assert all("valueFrom" in variable for variable in found["env"] if variable["name"] in ("POSTERN_APP_NAME", "POSTERN_APP_ID"))
    assert {"configMapRef": {"name": "own"}} not in found["envFrom"]
    assert "| `POSTERN_APP_NAME` without `postern/app-name: own`, `POSTERN_APP_ID` or `envFrom` in the Deployment |" in DOCUMENT


def test_a_container_called_sidecar_becomes_ours(tmp_path):
    deployment, its_service = service()
    deployment["spec"]["template"]["spec"]["containers"][0]["name"] = "sidecar"
    pod = named(laid_over("sidecar-plain", tmp_path, [deployment, its_service]), "Deployment", "orders")["spec"]["template"]["spec"]
    assert len(pod["containers"]) == 1
    assert "| a container of your own called `sidecar` |" in DOCUMENT
