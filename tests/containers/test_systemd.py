"""The units under a real systemd, installed by the very commands of deploy/systemd/README.md."""

import json
import re
from pathlib import Path

import pytest
from compose import REPOSITORY, run, until

IMAGE = "localhost/postern/systemd-test:dev"
HERE = Path(__file__).parent
INSTALL = re.search(r"```sh\n(.*?)```", (REPOSITORY / "deploy/systemd/README.md").read_text(), re.S)[1]
AUTH_SERVER, SIDECAR = "postern-auth-server", "postern-sidecar@orders"
# The options for systemd as process 1 of a container: mounts for itself and the units, and access
# to the paths that it hides from them.
AS_A_MACHINE = ["--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE"]
AS_A_MACHINE += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
AS_A_MACHINE += ["--cgroupns", "private", "--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec"]


class Machine:
    def __init__(self):
        run("docker", "build", "--tag", IMAGE, "--file", HERE / "systemd.Dockerfile", HERE)
        mounts = [f"{REPOSITORY}/deploy:/src/deploy:ro"]
        volumes = [word for mount in mounts for word in ("--volume", mount)]
        self.container = run("docker", "run", "--detach", *AS_A_MACHINE, *volumes, IMAGE).stdout.strip()

    def does(self, script, check=True):
        return run("docker", "exec", self.container, "bash", "-euo", "pipefail", "-c", script, check=check)

    def booted(self):
        state = self.does("systemctl is-system-running", check=False).stdout.strip()
        assert state in ("", "offline", "initializing", "starting", "running", "degraded"), state
        return state in ("running", "degraded")

    def shows(self, unit, what):
        return self.does(f"systemctl show --value --property={what} {unit}").stdout.strip()

    def fetch(self, url, *options):
        """Returns status and body of one request from within."""
        end = self.does(" ".join(["curl -sS -m 10 -w '\\n%{http_code}'", *options, url]), check=False)
        body, _, status = end.stdout.rpartition("\n")
        return int(status or 0), body

    def login(self):
        account = """-H 'Content-Type: application/json' -d '{"username": "ada", "password": "lovelace"}'"""
        status, body = self.fetch("http://127.0.0.1:9000/auth/oauth/jwt/token", account)
        assert status == 200, body
        return json.loads(body)["data"]["access_token"]

    def journal(self):
        return self.does("journalctl --no-pager --unit 'postern-*'", check=False).stdout

    def remove(self):
        run("docker", "rm", "--force", "--volumes", self.container)


@pytest.fixture(scope="module")
def machine(request):
    machine = Machine()
    try:
        until("systemd to be up", machine.booted)
        service = "/usr/bin/python3 /src/deploy/demo/python/service.py 127.0.0.1:3000"
        machine.does(f"systemd-run --unit=orders {service}")
        machine.does(INSTALL)
        yield machine
    finally:
        if request.session.testsfailed:
            print(machine.journal())
        machine.remove()


def reached(machine, token=None):
    header = [f"-H 'Authorization: Bearer {token}'"] if token else []
    return machine.fetch("http://127.0.0.1:8080/orders/list", *header)


def test_what_the_readme_installs_lets_in_users_alone(machine):
    until("the sidecar to reject", lambda: reached(machine)[0] == 401)
    token = machine.login()
    status, body = until("the sidecar to have a key", lambda: (a := reached(machine, token))[0] == 200 and a)
    assert json.loads(body)["user"]["account"] == "admin"
    for unit in [AUTH_SERVER, SIDECAR]:
        assert machine.does(f"systemctl is-enabled {unit}").stdout.strip() == "enabled"
        assert machine.shows(unit, "NRestarts") == "0", machine.journal()


def test_no_unit_is_root_and_what_is_written_is_its_own(machine):
    for unit in [AUTH_SERVER, SIDECAR]:
        process = machine.shows(unit, "MainPID")
        status = machine.does(f"cat /proc/{process}/status").stdout
        assert re.search(r"^Uid:\t(\d+)", status, re.M)[1] != "0"
        assert re.search(r"^CapEff:\t0+$", status, re.M)
        assert re.search(r"^NoNewPrivs:\t1$", status, re.M) and re.search(r"^Seccomp:\t2$", status, re.M)
    keys = machine.does("find /var/lib/private/postern-auth-server/ -type f -printf '%m %U\\n'").stdout.split("\n")
    owner = machine.does("stat --format %u /var/lib/private/postern-auth-server").stdout.strip()
    assert owner != "0" and set(filter(None, keys)) == {f"600 {owner}"}, keys


def test_a_program_that_was_killed_comes_back_with_the_same_key(machine):
    token = machine.login()
    for unit in [AUTH_SERVER, SIDECAR]:
        machine.does(f"systemctl kill --signal=KILL {unit}")
        until(f"{unit} to be started again", lambda: machine.shows(unit, "NRestarts") == "1")
    until("the token to be good again", lambda: reached(machine, token)[0] == 200)


def test_a_mistake_in_the_settings_is_not_tried_again(machine):
    machine.does("cp /etc/postern/sidecar-orders.env /etc/postern/sidecar-wrong.env")
    machine.does("echo POSTERN_SIGNING_TYPE=none >>/etc/postern/sidecar-wrong.env; umask 077; echo x >/etc/postern/wrong.secret")
    machine.does("systemctl start postern-sidecar@wrong", check=False)
    until("it to fail", lambda: machine.shows("postern-sidecar@wrong", "ActiveState") == "failed")
    assert machine.shows("postern-sidecar@wrong", "ExecMainStatus") in ("64", "78")
    assert machine.shows("postern-sidecar@wrong", "NRestarts") == "0"


def test_a_stop_is_clean_and_in_time(machine):
    for unit in [SIDECAR, AUTH_SERVER]:
        machine.does(f"systemctl stop {unit}")
        assert machine.shows(unit, "Result") == "success", machine.journal()
        assert (machine.shows(unit, "ActiveState"), machine.shows(unit, "ExecMainStatus")) == ("inactive", "0")
