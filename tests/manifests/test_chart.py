"""The Helm chart: it renders, is valid, and has the same objects as the kustomize tree."""

import copy
import json
import subprocess

import cel
import kubernetes_validate
import pytest
import yaml
from cluster import empty
from kubernetes import K8S, REPOSITORY, VERSIONS, containers, directories, named, of_kind, pods, production_errors, program, reads, render, settings
from programs import Mounts, accepted, run, variables

CHART = K8S / "chart"
TRIAL = ["--set", "authServer.users=builtin"]
REDIS = ["--set", "authServer.store.url=rediss://redis.example.com:6380/0"]
PRODUCTION = [
    *REDIS,
    "--set", "authServer.usersSecret=auth-users",
    "--set", "authServer.tlsSecret=auth-tls",
    "--set", "authServer.keyEncryptionSecret=auth-key-encryption",
    "--set", "authServer.applicationsSecret=auth-applications",
    "--set-json", 'applications=[{"name":"orders","secret":"orders-sidecar"}]',
    "--set", "webhook.certificate.issuer=ca,webhook.clientCaConfigMap=api-server-ca",
    "--set", "monitoring.podMonitors=true,monitoring.rules=true,monitoring.dashboard=true",
    "--set", "image.registry=registry.example.com",
    "--set-string", 'authServer.config=rotate-every = "30d"\n',
]
ALONE = ["--set", "authServer.enabled=false,webhook.settings.POSTERN_ISSUER_URL=https://id.example.com,webhook.settings.POSTERN_AUDIENCE=shop"]
# Their schemas are not here.
OTHERS = ("monitoring.coreos.com/", "cert-manager.io/")
SHAPES = {"default": [], "redis": REDIS, "production": PRODUCTION, "webhook alone": ALONE}


def helm(*arguments):
    return subprocess.run(["helm", *arguments], capture_output=True, text=True)


def rendered(*arguments, cluster=None):
    """Returns the end of a rendering for a cluster, as `helm install` makes one."""
    return helm("template", *TRIAL, *arguments, *(cluster or empty()).flags())


def template(*arguments, cluster=None):
    end = rendered("postern", CHART, "--namespace", "postern", *arguments, cluster=cluster)
    assert end.returncode == 0, end.stderr
    return [document for document in yaml.load_all(end.stdout, yaml.CSafeLoader) if document]


@pytest.fixture(scope="module", params=SHAPES)
def objects(request):
    return template(*SHAPES[request.param])


def test_helm_has_no_complaint():
    end = helm("lint", "--strict", CHART)
    assert end.returncode == 0, end.stdout + end.stderr


def test_it_has_the_version_of_the_programs():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    line = f'\nversion = "{chart["version"]}"\n'
    assert chart["version"] == chart["appVersion"] and line in (REPOSITORY / "Cargo.toml").read_text()


def test_it_is_valid_in_every_supported_version(objects):
    for version in VERSIONS:
        for each in objects:
            if each["apiVersion"].startswith(OTHERS):
                continue
            kubernetes_validate.validate(each, version, strict=True)


def test_its_pods_meet_the_restricted_standard(objects):
    for where, pod in pods(objects):
        for container in containers(pod):
            both = {**pod["securityContext"], **container["securityContext"]}
            assert both["runAsNonRoot"] and both["runAsUser"] == 65532, where
            assert both["seccompProfile"] == {"type": "RuntimeDefault"}, where
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, where
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, where
            assert container["resources"]["limits"]["memory"], where
        assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
        for volume in pod.get("volumes", []):
            assert "secret" not in volume or reads(pod | {}, {"securityContext": {}}, volume["secret"]), volume


def neutral(objects):
    """Returns objects by kind and name, without what an installation has of its own."""
    found = {}
    for each in copy.deepcopy(objects):
        each["metadata"].pop("namespace", None)
        if each["kind"] == "PersistentVolumeClaim":
            each["metadata"].pop("annotations", None)
        template = each["spec"]["template"] if "template" in each.get("spec", {}) else {"metadata": {}}
        for metadata in [each["metadata"], template["metadata"]]:
            for label in ["managed-by", "instance"]:
                metadata.get("labels", {}).pop(f"app.kubernetes.io/{label}", None)
        for _, pod in pods([each]) if each["kind"] in ("Deployment", "Job") else []:
            for container in containers(pod):
                container.pop("imagePullPolicy", None)
                container["env"] = [v for v in container["env"] if v["name"] not in ("POSTERN_AUDIENCE", "POSTERN_USERS")]
        found[each["kind"], each["metadata"]["name"]] = each
    return found


def test_the_auth_server_equals_the_base_s():
    chart = neutral(template("--set", "webhook.enabled=false"))
    assert chart == neutral(render(K8S / "base/auth-server"))


def test_the_replicated_auth_server_equals_the_component_s():
    flags = ["--set", "webhook.enabled=false", "--set", "authServer.store.url=redis://auth-redis:6379/0"]
    chart = neutral(template(*flags))
    scratch = K8S.parent / "target" / "chart-test"
    scratch.mkdir(parents=True, exist_ok=True)
    written = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../k8s/base/auth-server"],
        "components": ["../../k8s/components/replicated"],
    }
    (scratch / "kustomization.yaml").write_text(yaml.safe_dump(written))
    base = neutral(render(scratch))
    for each in [chart, base]:
        pod = each["Deployment", "auth-server"]["spec"]["template"]["spec"]
        for container in pod["containers"]:
            container["env"].sort(key=lambda variable: variable["name"])
    assert chart == base


def test_production_has_no_error():
    objects = [each for each in template(*PRODUCTION) if each["kind"] != "Job"]
    assert production_errors([each for each in objects if each["metadata"]["name"] == "auth-server"]) == []


def test_the_configuration_file_is_mounted_as_it_is_and_counts(tmp_path):
    text = 'issuer = "me"\nlame-duck = "3s"\naudience = ["a"]\n'
    values = "webhook.settings.POSTERN_AUDIENCE=a,webhook.settings.POSTERN_ISSUER=me"
    objects = template("--set-string", f"authServer.config={text}".replace(",", "\\,"), "--set", values)
    (config,) = of_kind(objects, "ConfigMap")
    assert config["data"] == {"auth-server.toml": text}
    pod = named(objects, "Deployment", "auth-server")["spec"]["template"]["spec"]
    own = settings(pod["containers"][0])
    assert own["POSTERN_CONFIG"] == "/etc/postern/auth-server.toml"
    assert "POSTERN_ISSUER" not in own and "POSTERN_LAME_DUCK" not in own and "POSTERN_AUDIENCE" not in own


@pytest.mark.parametrize("shape", ["default", "redis", "production"])
def test_the_programs_accept_their_configuration(shape, tmp_path):
    objects = template(*SHAPES[shape])
    deployment = named(objects, "Deployment", "auth-server")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    mounts = Mounts(tmp_path)
    values = mounts.localised(container)
    if config := of_kind(objects, "ConfigMap"):
        file = tmp_path / "etc/postern/auth-server.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(next(each for each in config if each["metadata"]["name"] == "auth-server")["data"]["auth-server.toml"])
    if "POSTERN_APPLICATIONS_DIR" in values:
        directory = tmp_path / "applications"
        directory.mkdir()
        values["POSTERN_APPLICATIONS_DIR"] = str(directory)
    accepted("auth-server", values)


def test_users_have_to_be_chosen():
    end = helm("template", CHART, "--set", "webhook.enabled=false")
    assert end.returncode != 0 and "authServer.usersSecret" in end.stderr and "authServer.users=builtin" in end.stderr, end.stderr


@pytest.mark.parametrize(
    "flags, expected",
    [
        ([], "builtin"),
        (["--set", "authServer.usersSecret=auth-users"], "file:/secrets/users/users.toml"),
        (["--set-string", 'authServer.config=users = "file:/etc/users.toml"\n'], None),
    ],
    ids=str,
)
def test_users_of_a_secret_or_a_file_replace_the_built_in_one(flags, expected):
    (container,) = named(template(*flags), "Deployment", "auth-server")["spec"]["template"]["spec"]["containers"]
    assert [each["value"] for each in container["env"] if each["name"] == "POSTERN_USERS"] == [expected] * bool(expected)


def test_a_registration_is_what_the_program_expects():
    (job,) = of_kind(template(*PRODUCTION), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    end = run("auth-server", *container["args"][:-1], "/nowhere")
    assert end.returncode == 78 and "/nowhere" in end.stderr, end.stderr


@pytest.mark.parametrize("applications", ['[{"name":"orders","secret":"s"}]'])
def test_applications_without_a_shared_store_are_an_error(applications):
    end = rendered(CHART, "--set-json", f"applications={applications}")
    assert end.returncode != 0 and "authServer.store.url" in end.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--set", "webhok.enabled=true"],
        ["--set", "webhook.replicas=0"],
        ["--set", "webhook.settings.PASS=/a"],
        ["--set", "authServer.store.url=http://redis"],
        ["--set", "authServer.usersSecret=Not A Name"],
        ["--set", "authServer.users=ada"],
        ["--set-json", 'applications=[{"name":"A B","secret":"s"}]'],
        ["--set-json", 'webhook.namespaceLabels=null'],
    ],
    ids=str,
)
def test_a_wrong_value_is_an_error(flags):
    end = rendered(CHART, *flags)
    assert end.returncode != 0, flags


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--set", "authServer.enabled=false"], "no source of keys"),
        (["--set-string", 'authServer.config=audience = ["a"]'], "POSTERN_AUDIENCE"),
        (["--set-string", 'authServer.config=issuer = "me"'], "POSTERN_ISSUER"),
        (["--set-string", 'authServer.config=context-path = "/login"'], "POSTERN_JWKS"),
        (["--set-string", 'authServer.config=signing-type = "hmac"'], "POSTERN_AUTH_SERVER"),
        (["--set", "authServer.store.url=redis://a,authServer.store.passwordSecret="], "passwordSecret"),
    ],
    ids=str,
)
def test_values_that_reject_every_token_are_an_error(flags, said):
    end = rendered(CHART, *flags)
    assert end.returncode != 0 and said in end.stderr, end.stderr


def test_a_setting_is_added_to_those_of_the_chart():
    arguments = webhook(template("--set", "webhook.settings.POSTERN_ACCESS_LOG=all"))["args"]
    settings = {word.split("=")[1] for word in arguments if word.startswith("--set=")}
    assert settings == {
        "POSTERN_ACCESS_LOG",
        "POSTERN_AUDIENCE",
        "POSTERN_JWKS",
        "POSTERN_REVOCATIONS_FROM",
    }


@pytest.mark.parametrize(
    "flags, expected",
    [
        (["--set", "webhook.settings.POSTERN_ISSUER_URL=https://idp,webhook.settings.POSTERN_AUDIENCE=a"], True),
        (["--set", "webhook.settings.POSTERN_AUTH_SERVER=http://auth.postern.svc:9000/auth"], False),
        (["--set-string", "webhook.settings.POSTERN_REVOCATIONS_FROM="], False),
        # Sidecars that take no list do not start with its address, and with hmac it is signed by a secret.
        (["--set", "webhook.settings.POSTERN_REVOCATIONS=off"], False),
        (["--set-string", "webhook.settings.POSTERN_REVOCATIONS=required"], True),
        (["--set-string", "authServer.config=signing-type = 'hmac'", "--set", "webhook.settings.POSTERN_JWKS=/k.json"], False),
        (["--set-string", 'authServer.config=signing-type = "rsa"'], True),
        (["--set", "authServer.enabled=false,webhook.settings.POSTERN_ISSUER_URL=https://idp,webhook.settings.POSTERN_AUDIENCE=a"], False),
    ],
    ids=str,
)
def test_sidecars_take_the_list_of_the_chart_s_auth_server(flags, expected):
    arguments = webhook(template(*flags))["args"]
    source = "--set=POSTERN_REVOCATIONS_FROM=http://auth.postern.svc:9000/auth"
    assert (source in arguments) == expected, arguments


@pytest.mark.parametrize(
    "flags, said",
    [
        ([], False),
        (["--set", "webhook.settings.POSTERN_REVOCATIONS=off"], True),
        (["--set", "webhook.settings.POSTERN_AUTH_SERVER=https://auth.example.com/auth"], False),
        ([*ALONE, "--set", "webhook.settings.POSTERN_REVOCATIONS_FROM=https://auth.example.com/auth"], False),
        (ALONE, True),
        (["--set", "webhook.enabled=false"], False),
    ],
    ids=str,
)
def test_the_notes_say_where_sidecars_do_not_learn_of_logouts(flags, said):
    webhook = ["--set", "webhook.certificate.issuer=any"]
    end = helm("install", "postern", CHART, "--dry-run=client", *TRIAL, *webhook, *flags)
    assert end.returncode == 0, end.stderr
    notes = end.stdout.partition("\nNOTES:\n")[2]
    assert "Postern" in notes
    assert ("do not learn of logouts" in notes) == said, notes


@pytest.mark.parametrize("namespace, fits", [("postern", True), ("identity", False)])
def test_sidecars_of_the_chart_s_auth_server_accept_its_audience(namespace, fits):
    url = f"http://auth.{namespace}.svc:9000/auth"
    arguments = webhook(template("--set", f"webhook.settings.POSTERN_AUTH_SERVER={url}"))["args"]
    assert ("--set=POSTERN_AUDIENCE=cluster" in arguments) == fits


@pytest.mark.parametrize("name", ["404", "true", "on", "1e3"])
def test_names_that_resemble_other_types_stay_names(name):
    flags = [*REDIS, "--set-string", f"authServer.store.passwordSecret={name},authServer.keyEncryptionSecret={name}"]
    flags += ["--set-string", f"authServer.usersSecret={name},webhook.certificate.issuer={name},monitoring.namespace={name}"]
    flags += ["--set-json", f'applications=[{{"name":"{name}","secret":"{name}"}}]' if "." not in name else "applications=[]"]
    flags += ["--set", "monitoring.rules=true,monitoring.dashboard=true", "--namespace", name]
    objects = template(*flags)
    for each in objects:
        if not each["apiVersion"].startswith(OTHERS):
            kubernetes_validate.validate(each, VERSIONS[-1], strict=True)
    (issued,) = of_kind(objects, "Certificate")
    assert issued["spec"]["issuerRef"]["name"] == name


def test_the_signing_key_outlives_an_uninstallation():
    (claim,) = of_kind(template(), "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_webhook_that_is_not_there_is_not_monitored():
    monitors = of_kind(template("--set", "webhook.enabled=false,monitoring.podMonitors=true"), "PodMonitor")
    assert {each["metadata"]["name"] for each in monitors} == {"auth-server", "postern-sidecar"}


def webhook(objects):
    (container,) = named(objects, "Deployment", "postern-webhook")["spec"]["template"]["spec"]["containers"]
    return container


def test_the_webhook_fails_closed_and_not_for_itself(objects):
    (configuration,) = of_kind(objects, "MutatingWebhookConfiguration")
    (hook,) = configuration["webhooks"]
    assert (hook["failurePolicy"], hook["sideEffects"], hook["timeoutSeconds"]) == ("Fail", "None", 5)
    (expression,) = hook["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system"])
    # Its own pods have no label, and start without it.
    for each in of_kind(objects, "Deployment"):
        assert "postern/sidecar" not in each["metadata"]["labels"] | each["spec"]["template"]["metadata"]["labels"]
    assert hook["objectSelector"]["matchExpressions"] == [
        {"key": "postern/sidecar", "operator": "Exists"},
        {"key": "postern/sidecar", "operator": "NotIn", "values": ["false"]},
    ]
    assert hook["namespaceSelector"]["matchLabels"] == {"postern/inject": "enabled"}
    assert hook["clientConfig"]["service"]["path"] == "/mutate"
    issued = of_kind(objects, "Certificate")
    assert bool(issued) != ("caBundle" in hook["clientConfig"])
    assert named(objects, "Deployment", "postern-webhook")["spec"]["replicas"] == 2
    assert named(objects, "PodDisruptionBudget", "postern-webhook")


CONTROLLED = {"ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}]}
ENDING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("operation", "kind", "metadata", "is_sent"),
    [
        ("CREATE", "Deployment", {}, True),
        ("UPDATE", "Deployment", {"ownerReferences": []}, True),
        ("UPDATE", "Deployment", {"ownerReferences": [{"kind": "App", "name": "web"}]}, True),
        ("UPDATE", "Deployment", {"ownerReferences": [{"kind": "App", "name": "web", "controller": False}]}, True),
        ("UPDATE", "ReplicaSet", CONTROLLED, False),
        ("CREATE", "Job", CONTROLLED, False),
        ("CREATE", "Pod", CONTROLLED, True),
        ("CREATE", "Service", CONTROLLED, True),
        ("UPDATE", "Deployment", ENDING, False),
        ("UPDATE", "Service", ENDING, False),
        # The member is the author's at a creation.
        ("CREATE", "Pod", ENDING, True),
    ],
)
def test_controllers_go_on_without_the_webhook(objects, operation, kind, metadata, is_sent):
    (configuration,) = of_kind(objects, "MutatingWebhookConfiguration")
    (hook,) = configuration["webhooks"]
    request = {"operation": operation, "kind": {"kind": kind}}
    values = {"object": {"kind": kind, "metadata": metadata}, "request": request}
    expressions = [each["expression"] for each in hook["matchConditions"]]
    assert all(cel.evaluate(cel.OF_CONDITIONS, expressions, values)) == is_sent


def test_every_file_of_the_webhook_s_arguments_is_mounted(objects):
    container = webhook(objects)
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    files = {word.partition("=")[2] for word in container["args"] if word.startswith(("--tls-", "--client-ca="))}
    assert {file.rpartition("/")[0] for file in files} == mounts


def test_the_webhook_s_sidecars_have_the_resources_of_the_values():
    limits = ["--set-string", "webhook.resources.limits.memory=512Mi,webhook.resources.requests.cpu=50m"]
    arguments = webhook(template(*limits))["args"]
    flags = [word for word in arguments if word.startswith("--resources=")]
    assert flags == ["--resources=memory-limit=512Mi", "--resources=cpu-request=50m"]
    assert rendered(CHART, "--set", "webhook.resources.limits.disk=1").returncode != 0


PLACEMENT = {
    "nodeSelector": {"pool": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}


@pytest.mark.parametrize("part", ["webhook", "authServer"])
def test_pods_run_where_the_values_say(part):
    values = {**PLACEMENT, "podAnnotations": {"example.com/team": "identity"}}
    flags = [word for name, value in values.items() for word in ("--set-json", f"{part}.{name}={json.dumps(value)}")]
    chosen, plain = template(*PRODUCTION, *flags), template(*PRODUCTION)
    name = {"webhook": "postern-webhook", "authServer": "auth-server"}[part]
    for each in of_kind(chosen, "Deployment", "Job"):
        before = named(plain, each["kind"], each["metadata"]["name"])["spec"]["template"]
        pod = each["spec"]["template"]
        is_chosen = each["metadata"]["name"] == name or part == "authServer" and each["kind"] == "Job"
        assert pod["spec"] == {**before["spec"], **(PLACEMENT if is_chosen else {})}
        added = values["podAnnotations"] if each["metadata"]["name"] == name else {}
        assert pod["metadata"].get("annotations", {}) == {**before["metadata"].get("annotations", {}), **added}


def test_values_replace_resources_of_the_auth_server():
    def resources(*flags):
        pod = named(template(*flags), "Deployment", "auth-server")["spec"]["template"]["spec"]
        return pod["containers"][0]["resources"]

    own = resources()
    limits = {**own["limits"], "memory": "2Gi"}
    assert resources("--set", "authServer.resources.limits.memory=2Gi") == {**own, "limits": limits}


MISTAKES = [
    ("webhook.settings.POSTERN_ISUER=a", "POSTERN_ISUER is no setting of the sidecar"),
    ("webhook.settings.POSTERN_APP_SECRET=a", "or a secret one"),
    ("webhook.settings.POSTERN_LISTEN=:1", "POSTERN_LISTEN follows from"),
    ("webhook.settings.POSTERN_JWKS=a,webhook.settings.POSTERN_ISSUER_URL=b", "two sources of keys"),
    ("webhook.settings.POSTERN_AUTH_SERVER=a,webhook.settings.POSTERN_JWKS=b", "two sources of keys"),
    *((f"webhook.resources.limits.memory={text}", "does not match pattern") for text in ["12Qi", "1 Gi", "-1", ".", "1e", "1KI"]),
    ("authServer.resources.requests.cpu=one", "does not match pattern"),
    ("authServer.persistence.size=16MB", "does not match pattern"),
    ("webhook.nodeselector.a=b", "not allowed"),
]


@pytest.mark.parametrize("mistake, said", MISTAKES)
def test_a_mistake_in_the_values_renders_nothing(mistake, said):
    end = rendered(CHART, "--set-string", mistake)
    assert end.returncode != 0 and said in end.stderr, end.stderr


@pytest.mark.parametrize("quantity", ["100m", "0.5", "64Mi", "2Ti", "1e9", "1E9", "5.", ".5", "12e-3", "3k", "1Ei"])
def test_values_and_tool_accept_the_quantities_of_kubernetes(quantity):
    flags = webhook(template("--set-string", f"webhook.resources.requests.cpu={quantity}"))["args"]
    guestbook = (K8S.parent / "tests/data/inject/in/guestbook.yaml").read_text()
    end = run("postern-k8s", "inject", *[flag for flag in flags if flag.startswith("--resources=")], stdin=guestbook)
    assert end.returncode == 0, end.stderr
    deployment = named(list(yaml.safe_load_all(end.stdout)), "Deployment", "frontend")
    (sidecar,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["resources"]["requests"]["cpu"] == quantity


def test_the_webhook_names_resources_that_no_pod_could_have():
    for flag, said in [("memory-limit=32Mi", "64Mi at least"), ("memory-request=1Gi", "more memory than its limit")]:
        end = run("postern-k8s", "webhook", "--tls-cert=/nowhere", "--tls-key=/nowhere", "--resources", flag)
        assert end.returncode == 64 and "--resources" in end.stderr and said in end.stderr, end.stderr
        assert "annotation" not in end.stderr


def test_replicas_are_spread_by_revision():
    """A rollout's old pods do not count: else the new ones end up on one node."""
    trees = [render(directory) for directory in directories("Kustomization")]
    found = [pod for objects in [*trees, *(template(*flags) for flags in SHAPES.values())] for _, pod in pods(objects)]
    constraints = [each for pod in found for each in pod.get("topologySpreadConstraints", [])]
    assert len(constraints) > 2
    assert all(each["matchLabelKeys"] == ["pod-template-hash"] for each in constraints)


def test_a_certificate_of_one_s_own_leaves_no_empty_document():
    own = ["--set", "webhook.certificate.secret=own", "--set-string", "webhook.certificate.caBundle=-----BEGIN CERTIFICATE-----"]
    documents = rendered(CHART, *own).stdout.split("\n---\n")
    assert all("\nkind: " in document for document in documents), documents


@pytest.mark.parametrize("shape", ["default", "production", "webhook alone"])
def test_the_webhook_s_arguments_make_a_working_sidecar(shape, tmp_path):
    container = webhook(template(*SHAPES[shape]))
    flags = [word for word in container["args"] if word.startswith(("--set=", "--image="))]
    guestbook = (K8S.parent / "tests/data/inject/in/guestbook.yaml").read_text()
    end = run("postern-k8s", "inject", *flags, stdin=guestbook)
    assert end.returncode == 0, end.stderr
    deployment = named(list(yaml.safe_load_all(end.stdout)), "Deployment", "frontend")
    pod = deployment["spec"]["template"]["spec"]
    assert not [volume for volume in pod["volumes"] if "secret" in volume], "one label, and no Secret"
    sidecar = pod["initContainers"][0]
    assert set(settings(sidecar)) <= variables("sidecar")
    accepted("sidecar", Mounts(tmp_path).localised(sidecar))


@pytest.mark.parametrize("page", ["README.md", "docs/kubernetes.md"])
def test_the_start_of_a_document_works(page):
    """`helm install` as it is written there, and labels that the installed webhook waits for."""
    lines = (K8S.parent / page).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.startswith("helm install ")]
    block = lines[number : lines.index("```", number)]
    assert "--wait" in block[0], "no label counts before the webhook serves"
    assert all(line.partition("#")[0].rstrip().endswith("&&") for line in block[:-1]), "a line that failed ends it"
    command = block[0].partition("#")[0].replace("helm install", "helm template", 1).rstrip(" &").split()
    end = subprocess.run([*command, *empty().flags()], cwd=K8S.parent, capture_output=True, text=True)
    assert end.returncode == 0, end.stderr
    (configuration,) = of_kind([each for each in yaml.safe_load_all(end.stdout) if each], "MutatingWebhookConfiguration")
    (hook,) = configuration["webhooks"]
    labels = {word for line in lines if line.startswith("kubectl") and " label " in line for word in line.split() if "=" in word}
    (of_namespace,) = [f"{name}={value}" for name, value in hook["namespaceSelector"]["matchLabels"].items()]
    assert labels == {of_namespace, "postern/sidecar=true"}
    labelled = {kind for line in lines if "postern/sidecar=true" in line for kind in ["deployment", "service"] if kind in line}
    resources = {resource for rule in hook["rules"] for resource in rule["resources"] if "UPDATE" in rule["operations"]}
    assert {f"{kind}s" for kind in labelled} == {"deployments", "services"} <= resources


def test_rules_and_dashboard_are_those_of_the_tree():
    objects = template(*PRODUCTION)
    rules = yaml.safe_load((K8S / "components/prometheusrule/prometheusrule.yaml").read_text())
    assert named(objects, "PrometheusRule", "postern")["spec"] == rules["spec"]
    dashboard = json.loads((K8S.parent / "deploy/grafana/postern.json").read_text())
    assert json.loads(named(objects, "ConfigMap", "postern-dashboard")["data"]["postern.json"]) == dashboard
    assert {each["metadata"]["name"] for each in of_kind(objects, "PodMonitor")} == {"auth-server", "postern-sidecar", "postern-webhook"}


def test_the_chart_can_be_packaged(tmp_path):
    end = helm("package", CHART, "--destination", tmp_path)
    assert end.returncode == 0, end.stderr
    (archive,) = tmp_path.glob("postern-*.tgz")
    end = helm("template", "postern", archive, "--namespace", "postern", "--set", "webhook.enabled=false", *TRIAL)
    packed = [document for document in yaml.safe_load_all(end.stdout) if document]
    assert neutral(packed) == neutral(template("--set", "webhook.enabled=false"))
    assert program(named(packed, "Deployment", "auth-server")["spec"]["template"]["spec"]["containers"][0]) == "auth-server"
