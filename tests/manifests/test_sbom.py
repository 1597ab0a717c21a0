"""The list of a program's components."""

import json
import re
import subprocess

import pytest
from kubernetes import REPOSITORY


@pytest.fixture(scope="module", params=["auth-server", "sidecar", "postern-k8s"])
def sbom(request):
    end = subprocess.run([REPOSITORY / "scripts/sbom.py", request.param], capture_output=True, text=True)
    assert end.returncode == 0, end.stderr
    return request.param, json.loads(end.stdout)


def test_it_names_every_part_with_licence_and_checksum(sbom):
    name, document = sbom
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert document["metadata"]["component"]["name"] == name
    components = {each["name"]: each for each in document["components"]}
    for own in ["postern-process", "postern-transport"]:
        assert components[own]["licenses"] == [{"expression": "Apache-2.0"}]
    for each in document["components"]:
        assert each["licenses"][0]["expression"], each["name"]
        published = re.fullmatch("[0-9a-f]{64}", each.get("hashes", [{"content": ""}])[0]["content"])
        assert published or "hashes" not in each and each["licenses"] == [{"expression": "Apache-2.0"}], each
    assert ("pingora-core" in components) == (name == "sidecar")
    assert ("argon2" in components) == (name == "auth-server")
    for tool in ["cc", "cmake", "boon", "syn"]:
        assert tool not in components, f"{tool} is not linked into the program"


def test_every_dependency_leads_to_a_component(sbom):
    _, document = sbom
    known = {each["bom-ref"] for each in [*document["components"], document["metadata"]["component"]]}
    assert {each["ref"] for each in document["dependencies"]} == known
    for each in document["dependencies"]:
        assert set(each["dependsOn"]) <= known
