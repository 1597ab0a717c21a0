"""The systemd units: valid, confined, and with settings of the programs."""

import re
import subprocess

import pytest
from kubernetes import REPOSITORY
from programs import path, run, variables

UNITS = sorted((REPOSITORY / "deploy/systemd").glob("*.service"))
PROGRAM = {"postern-auth-server.service": "auth-server", "postern-sidecar@.service": "sidecar"}
# A unit without any protection gets 9.6 of `systemd-analyze security`.
MAX_EXPOSURE = 20  # tenths


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_is_valid_and_closed(unit, tmp_path):
    program = PROGRAM[unit.name]
    # The unit names the installed program; here it is where it was built.
    local = tmp_path / unit.name
    local.write_text(unit.read_text().replace(f"/usr/local/bin/{program}", str(path(program))))
    verified = analyze("verify", "--man=no", local)
    assert (verified.returncode, verified.stderr) == (0, ""), verified.stderr
    assert analyze("security", "--offline=true", f"--threshold={MAX_EXPOSURE}", local).returncode == 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_sets_what_the_program_knows_and_stops_in_time(unit):
    program, text = PROGRAM[unit.name], unit.read_text()
    for variable in re.findall(r"POSTERN_[A-Z_]+(?==)", text):
        assert variable.replace("POSTERN_DEFAULT_", "POSTERN_") in variables(program), variable
    for line in re.findall(r"^Exec\w+=-?/usr/local/bin/\S+ (.*)$", text, re.M):
        assert run(program, *line.split()[:1], "--help").returncode == 0, line
    assert "\nExecReload=/bin/kill -HUP $MAINPID\n" in text
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)[1]) > 5 + 20


def test_no_unit_was_forgotten():
    assert {unit.name for unit in UNITS} == set(PROGRAM)
