"""The certificate of the chart's webhook: made once, or taken from where the operator keeps it."""

import base64
import copy
import subprocess

import pytest
from cluster import Cluster
from kubernetes import DOCUMENT, K8S, named, of_kind
from test_chart import CHART, TRIAL, helm, template, webhook

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
OWN = ["--set", "webhook.certificate.secret=own-tls", "--set-string", f"webhook.certificate.caBundle={CA}"]
ISSUER = ["--set", "webhook.certificate.issuer=ca"]


def bundle(objects):
    (configuration,) = of_kind(objects, "MutatingWebhookConfiguration")
    return base64.b64decode(configuration["webhooks"][0]["clientConfig"].get("caBundle", "")).decode()


def test_an_installation_makes_one_for_the_service(tmp_path):
    secret = named(template(), "Secret", "postern-webhook-tls")["data"]
    for name, value in secret.items():
        (tmp_path / name).write_bytes(base64.b64decode(value))
    verify = ["openssl", "verify", "-verify_hostname", "postern-webhook.postern.svc", "-CAfile", tmp_path / "ca.crt", tmp_path / "tls.crt"]
    assert subprocess.run(verify, capture_output=True).returncode == 0


def test_an_upgrade_keeps_it():
    installed = template()
    secret = copy.deepcopy(named(installed, "Secret", "postern-webhook-tls"))
    # Added by Helm when it installs.
    secret["metadata"]["annotations"] = {"meta.helm.sh/release-name": "postern", "meta.helm.sh/release-namespace": "postern"}
    upgraded = template(cluster=Cluster(secrets=[secret]))
    assert upgraded == installed
    assert bundle(upgraded).encode() == base64.b64decode(secret["data"]["ca.crt"])


def without_a_cluster(*flags):
    """Returns the end of a rendering as Argo CD makes one."""
    return helm("template", "postern", CHART, "--namespace", "postern", *TRIAL, *flags)


@pytest.mark.parametrize("flags", [OWN, ISSUER, ["--set", "webhook.enabled=false"]], ids=str)
def test_renderings_without_a_cluster_are_alike(flags):
    one, other = without_a_cluster(*flags), without_a_cluster(*flags)
    assert one.returncode == 0, one.stderr
    assert one.stdout == other.stdout
    assert "PRIVATE KEY" not in one.stdout and "tls.key: " not in one.stdout


def test_a_rendering_without_a_cluster_makes_no_certificate():
    end = without_a_cluster()
    assert end.returncode != 0
    for word in ["webhook.certificate.issuer", "webhook.certificate.secret", "--dry-run=server"]:
        assert word in end.stderr, end.stderr


def test_a_secret_of_the_operator_is_mounted_and_trusted():
    objects = template(*OWN)
    assert bundle(objects) == CA
    assert of_kind(objects, "Secret", "Certificate") == []
    pod = named(objects, "Deployment", "postern-webhook")["spec"]["template"]["spec"]
    (volume,) = pod["volumes"]
    assert volume["secret"] == {"secretName": "own-tls", "defaultMode": 0o440}
    assert [mount["mountPath"] for mount in webhook(objects)["volumeMounts"]] == ["/secrets/tls"]


@pytest.mark.parametrize(
    "flags, said",
    [
        (OWN[:2], "caBundle"),
        (OWN[2:], "secret"),
        (OWN + ISSUER, "issuer"),
        (["--set", "webhook.certificate.secret=own-tls,webhook.certificate.caBundle=ca.crt"], "caBundle"),
    ],
    ids=["no authority", "no secret", "both", "no PEM"],
)
def test_half_a_choice_is_an_error(flags, said):
    end = without_a_cluster(*flags)
    assert end.returncode != 0 and said in end.stderr, end.stderr


def test_the_documented_commands_make_such_a_secret(tmp_path):
    page = (K8S.parent / "docs/kubernetes/inject.md").read_text()
    (command,) = [line for line in page.replace("\\\n", "").splitlines() if line.startswith("openssl req")]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, capture_output=True)
    verify = ["openssl", "verify", "-verify_hostname", "postern-webhook.postern.svc", "-CAfile", "tls.crt", "tls.crt"]
    assert subprocess.run(verify, cwd=tmp_path, capture_output=True).returncode == 0
    end = without_a_cluster("--set", "webhook.certificate.secret=own-tls", "--set-file", f"webhook.certificate.caBundle={tmp_path}/tls.crt")
    assert end.returncode == 0, end.stderr
    assert "webhook.certificate.caBundle" in DOCUMENT
