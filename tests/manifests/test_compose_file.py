"""The rules for the compose file and the Dockerfile that hold without an engine."""

import os
import re
import subprocess
import tomllib

import pytest
import yaml
from kubernetes import REPOSITORY
from programs import DOCKERFILE, Mounts, accepted, variables

COMPOSE = yaml.safe_load((REPOSITORY / "deploy/docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"].startswith("localhost/postern/")}


def test_compose_1_29_reads_it():
    assert "name" not in COMPOSE and "version" not in COMPOSE


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_and_ports_stay_on_this_machine(name):
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert tag == "dev" if name in OURS else re.search(r"\d+\.\d+\.\d+", tag), service["image"]
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), port


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "nacos"])
def test_containers_are_confined(name):
    service = SERVICES[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert name in OURS or name in ("prometheus", "grafana") or service["user"] != "0:0" or name == "secrets"


@pytest.mark.parametrize("name", OURS)
def test_our_settings_are_settings_and_no_secret_is_among_them(name):
    known = variables("sidecar" if name.endswith("-sidecar") else "auth-server")
    for variable in OURS[name]["environment"]:
        assert variable in known, variable
        assert variable.endswith("_FILE") or not re.search("SECRET|PASSWORD", variable)


def container_of(name):
    """Returns a service of the compose file as the container of a pod, with the defaults of its variables."""
    values = {key: re.sub(r"\$\{\w+-([^}]*)\}", r"\1", value) for key, value in OURS[name]["environment"].items()}
    mounts = [{"mountPath": volume.split(":")[1]} for volume in OURS[name]["volumes"]]
    return {"env": [{"name": key, "value": value} for key, value in values.items()], "volumeMounts": mounts}


@pytest.mark.parametrize("name", [name for name in OURS if "command" not in OURS[name]])
def test_the_programs_accept_their_configuration(name, tmp_path):
    program = "sidecar" if name.endswith("-sidecar") else "auth-server"
    accepted(program, Mounts(tmp_path).localised(container_of(name)))


@pytest.mark.parametrize("name", [name for name in SERVICES if f"{name}-sidecar" in SERVICES])
def test_a_service_is_alone_with_its_sidecar(name):
    assert SERVICES[name]["networks"] == [name] and COMPOSE["networks"][name] == {"internal": True}
    assert "ports" not in SERVICES[name]
    there = [other for other, service in SERVICES.items() if name in service.get("networks", [])]
    assert sorted(there) == [name, f"{name}-sidecar"]
    assert int(SERVICES[f"{name}-sidecar"]["stop_grace_period"].rstrip("s")) > 1 + 20


def test_what_an_image_brings_ranks_below_a_file():
    brought = re.findall(r"\b(POSTERN_\w+)=", DOCKERFILE)
    assert brought and all(name.startswith("POSTERN_DEFAULT_") for name in brought), brought


def test_the_dockerfile_needs_no_buildkit_and_pins_its_bases():
    assert "# syntax=" not in DOCKERFILE and "--mount" not in DOCKERFILE
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    stages = re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, re.M)
    for base in bases:
        assert base in (*stages, "scratch") or re.search(r":\d+\.\d+\.\d+", base), base
    oldest = re.search(r'^rust-version = "([\d.]+)"', (REPOSITORY / "Cargo.toml").read_text(), re.M)[1]
    toolchain = re.search(r'^channel = "([\d.]+)"', (REPOSITORY / "rust-toolchain.toml").read_text(), re.M)[1]
    assert toolchain.startswith(f"{oldest}.")
    assert {base for base in bases if base.startswith("rust:")} == {f"rust:{toolchain}-slim-bookworm"}


def test_prometheus_scrapes_every_admin_port():
    scraped = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in scraped for config in job["static_configs"] for target in config["targets"]}
    serving = {name for name in OURS if not name.startswith("register-")}
    assert targets == {f"{name}:{9001 if name == 'auth-server' else 8081}" for name in serving}
    for name in serving:
        assert set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"])


def test_the_manifest_of_every_member_is_there_for_the_build():
    """cargo reads all of them, also for a single program."""
    let_in = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]
    for member in workspace["members"]:
        whole = any(member == directory or member.startswith(f"{directory}/") for directory in let_in)
        assert whole or f"{member}/Cargo.toml" in let_in, f".dockerignore keeps {member}/Cargo.toml out"


# With a tag, or where an image name is expected.
WITHOUT_REGISTRY = re.compile(r"(?<![\w./-])postern/[\w-]+:[\w$({]|\b(?:image|name|newName|tag|from)[:=]? ?postern/")


def test_no_image_has_a_name_that_an_attacker_could_publish():
    """Without a registry it is Docker Hub's: the owner of `postern` there would get our secrets."""
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for file in (REPOSITORY / name for name in tracked.splitlines()):
        if file.suffix in {".md", ".yml", ".yaml", ".sh", ".py", ".Dockerfile", ""} and file.is_file():
            assert not WITHOUT_REGISTRY.findall(file.read_text(errors="replace")), file.name


@pytest.mark.parametrize("settings, prefix", [([], "localhost"), (["REGISTRY=registry.example.com:5000"], "registry.example.com:5000")])
def test_images_are_built_under_the_name_of_the_registry(settings, prefix):
    command = ["make", "--no-print-directory", "-n", "images", "VERSION=1.2.3", *settings]
    without = {name: value for name, value in os.environ.items() if name not in ("REGISTRY", "MAKEFLAGS")}
    end = subprocess.run(command, cwd=REPOSITORY, env=without, capture_output=True, text=True, check=True)
    for program in ["auth-server", "sidecar"]:
        assert f"--tag {prefix}/postern/{program}:1.2.3 " in end.stdout
