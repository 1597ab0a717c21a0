"""The workflow of the public CI: it runs the parts of `make test-full`, and only existing ones."""

import re

import pytest
import yaml
from kubernetes import REPOSITORY

WORKFLOW = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text())
MAKEFILE = (REPOSITORY / "Makefile").read_text()
RULES = {target: prerequisites.split() for target, prerequisites in re.findall(r"^([a-z0-9-]+):([^=\n#]*)", MAKEFILE, re.M)}
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
COMMANDS = [step["run"] for step in STEPS if "run" in step]


def made():
    """Returns the make targets that the workflow calls."""
    return {word for command in COMMANDS if command.startswith("make ") for word in command.split()[1:] if "=" not in word}


def leaves(target):
    """Returns the targets that a target consists of."""
    return set().union(*map(leaves, RULES[target])) if target in ("test-full", "test") else {target}


def test_every_job_calls_make_targets_that_exist():
    assert made() <= RULES.keys()
    assert set(WORKFLOW["jobs"]) == {"lint", "tests", "policy", "fuzz", "manifests", "images"}


def test_the_jobs_together_are_what_one_machine_runs():
    assert leaves("test-full") - made() == set()
    assert "make test-full" in (REPOSITORY / ".ci/run").read_text()


@pytest.mark.parametrize("command", [each for each in COMMANDS if not each.startswith(("make ", "rustup "))])
def test_every_script_of_a_step_can_be_run(command):
    script = REPOSITORY / command.split()[0]
    assert script.is_file() and script.stat().st_mode & 0o100


def test_every_step_is_a_command_or_a_versioned_action():
    for step in STEPS:
        assert ("run" in step) != ("uses" in step), step
        assert "uses" not in step or re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+", step["uses"]), step


def test_jobs_may_only_read_and_end_in_time():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 and "permissions" not in job for job in WORKFLOW["jobs"].values())
