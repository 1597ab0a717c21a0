"""`make release`, made of the layers that are built already."""

import hashlib
import json
import subprocess
import tarfile
from functools import partial

import pytest
import yaml
from compose import REPOSITORY, run

VERSION = next(line.split('"')[1] for line in (REPOSITORY / "Cargo.toml").read_text().splitlines() if line.startswith("version"))
PROGRAMS = ["auth-server", "sidecar", "postern-k8s"]
# A name of its own: what `make images` has made stays.
REGISTRY = "localhost/release-test"
IMAGES = [f"{REGISTRY}/postern/{program}:{VERSION}" for program in PROGRAMS]
release = partial(run, REPOSITORY / "scripts/release.sh")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    release(out, env={"REGISTRY": REGISTRY})
    yield out
    run("docker", "rmi", *IMAGES)


def the(files):
    (found,) = files
    return found


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def test_every_file_has_its_checksum(released):
    lines = [line.split("  ") for line in (released / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in lines} == {each.name for each in released.iterdir()} - {"SHA256SUMS"}
    for digest, name in lines:
        assert sha256((released / name).read_bytes()) == digest


def test_the_provenance_names_files_images_and_their_sources(released):
    statement = json.loads((released / f"provenance-{VERSION}.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    digests = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    files = {each.name for each in released.iterdir()} - {"SHA256SUMS", f"provenance-{VERSION}.json"}
    assert digests.keys() == files | set(IMAGES)
    for name in files:
        assert sha256((released / name).read_bytes()) == digests[name]
    for name in IMAGES:
        assert run("docker", "image", "inspect", "--format", "{{.Id}}", name).stdout.strip() == f"sha256:{digests[name]}"
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["version"] == VERSION and definition["externalParameters"]["targets"]
    materials = {each["name"]: each.get("digest", {}) for each in definition["resolvedDependencies"]}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
    assert materials["source"] == {"gitCommit": commit}
    assert materials["Cargo.lock"] == {"sha256": sha256((REPOSITORY / "Cargo.lock").read_bytes())}
    assert "rust" in materials and any(name.startswith("rust:") for name in materials)


def test_the_archive_holds_the_programs_of_the_images(released, tmp_path):
    run("docker", "rmi", *IMAGES)
    run("docker", "load", "--input", the(released.glob("*-images.tar.gz")))
    archive = the(released.glob("*-linux.tar.gz"))
    name = archive.name.removesuffix(".tar.gz")
    assert name.startswith(f"postern-{VERSION}-")
    with tarfile.open(archive) as tar:
        members = {member.name.removeprefix(f"{name}/"): member for member in tar.getmembers()}
        assert {*PROGRAMS, "LICENSE", "README.md", "CHANGELOG.md"} <= members.keys()
        assert {member.uid for member in members.values()} == {0}
        for program, image in zip(PROGRAMS, IMAGES):
            container = run("docker", "create", image).stdout.strip()
            run("docker", "cp", f"{container}:/{program}", tmp_path)
            run("docker", "rm", container)
            assert (tmp_path / program).read_bytes() == tar.extractfile(members[program]).read()
    run(tmp_path / "sidecar", "--version")


def test_manifests_and_chart_are_of_the_version(released):
    for overlay in ["dev", "prod"]:
        objects = list(yaml.safe_load_all((released / f"postern-{VERSION}-{overlay}.yaml").read_text()))
        assert any(each["kind"] == "Deployment" for each in objects)
        assert not any(each["kind"] == "Secret" for each in objects)
    with tarfile.open(released / f"postern-{VERSION}.tgz") as tar:
        chart = yaml.safe_load(tar.extractfile("postern/Chart.yaml"))
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_an_impossible_target_is_an_error_before_any_build(tmp_path):
    end = release(tmp_path / "dist", check=False, env={"TARGETS": "sparc64-unknown-linux-gnu"})
    assert end.returncode == 1 and "sparc64-unknown-linux-gnu" in end.stderr
    assert not (tmp_path / "dist").exists()
