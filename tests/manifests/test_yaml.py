"""What `postern-k8s` writes of each row of tests/data/yaml_1_1.json, as PyYAML and kubectl read it."""

import json
import subprocess

import pytest
import yaml
from kubernetes import REPOSITORY
from programs import run

ROWS = json.loads((REPOSITORY / "tests/data/yaml_1_1.json").read_text())
HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def read_by_kubectl(text):
    command = ["kubectl", "annotate", "--local", "-f", "-", "a=b", "-o", "json"]
    end = subprocess.run(command, input=text, capture_output=True, text=True)
    assert end.returncode == 0, end.stderr
    return json.loads(end.stdout)["x"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["yaml"])
def test_every_reader_finds_the_same_value(row):
    end = run("postern-k8s", "inject", stdin=HEAD + row["yaml"])
    if "error" in row:
        assert (end.returncode, end.stdout) == (78, "")
        assert row["error"] in end.stderr and end.stderr.count("\n") == 1, end.stderr
        return
    assert yaml.safe_load(end.stdout)["x"] == row["x"], end.stdout
    assert read_by_kubectl(HEAD + row["yaml"]) == row["x"]
    assert read_by_kubectl(end.stdout) == row["x"]
