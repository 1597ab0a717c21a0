"""The files of a release, made of the programs that are built already."""

import hashlib
import json
import os
import subprocess
import tarfile

import pytest
import yaml
from kubernetes import REPOSITORY
from programs import path

VERSION = next(line.split('"')[1] for line in (REPOSITORY / "Cargo.toml").read_text().splitlines() if line.startswith("version"))


def release(out, **variables):
    command = [REPOSITORY / "scripts/release.sh", out]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    end = release(out, BUILT=str(path("sidecar").parent))
    assert end.returncode == 0, end.stderr
    return out


def test_every_file_has_its_checksum(released):
    lines = [line.split("  ") for line in (released / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in lines} == {each.name for each in released.iterdir()} - {"SHA256SUMS"}
    for digest, name in lines:
        assert hashlib.sha256((released / name).read_bytes()).hexdigest() == digest


def test_the_provenance_names_every_file_and_what_it_was_made_of(released):
    statement = json.loads((released / f"provenance-{VERSION}.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    digests = {each["name"]: each["digest"]["sha256"] for each in statement["subject"] if "/" not in each["name"]}
    others = {each.name for each in released.iterdir()} - {"SHA256SUMS", f"provenance-{VERSION}.json"}
    assert set(digests) == others
    for name, digest in digests.items():
        assert hashlib.sha256((released / name).read_bytes()).hexdigest() == digest
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["version"] == VERSION and definition["externalParameters"]["targets"]
    materials = {each["name"]: each.get("digest", {}) for each in definition["resolvedDependencies"]}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
    assert materials["source"] == {"gitCommit": commit}
    assert materials["Cargo.lock"] == {"sha256": hashlib.sha256((REPOSITORY / "Cargo.lock").read_bytes()).hexdigest()}
    assert "rust" in materials and any(name.startswith("rust:") for name in materials)


def test_the_archive_holds_both_programs_and_the_licence(released):
    (archive,) = released.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {member.name.partition("/")[2] for member in tar.getmembers()}
        assert {member.uid for member in tar.getmembers()} == {0}
    assert {"auth-server", "sidecar", "postern-k8s", "LICENSE", "README.md", "CHANGELOG.md"} <= names
    assert archive.name.startswith(f"postern-{VERSION}-") and archive.name.endswith("-linux.tar.gz")


def test_manifests_and_chart_are_of_the_version(released):
    for overlay in ["dev", "prod"]:
        objects = list(yaml.safe_load_all((released / f"postern-{VERSION}-{overlay}.yaml").read_text()))
        assert any(each["kind"] == "Deployment" for each in objects)
        assert not any(each["kind"] == "Secret" for each in objects)
    with tarfile.open(released / f"postern-{VERSION}.tgz") as tar:
        chart = yaml.safe_load(tar.extractfile("postern/Chart.yaml"))
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_chart_has_the_version_of_the_programs():
    chart = yaml.safe_load((REPOSITORY / "k8s/chart/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_an_impossible_target_is_an_error_before_any_build(tmp_path):
    end = release(tmp_path / "dist", TARGETS="sparc64-unknown-linux-gnu")
    assert end.returncode == 1 and "sparc64-unknown-linux-gnu" in end.stderr
    assert not (tmp_path / "dist").exists()
