"""The compose stack as the tests see it: commands on one side, published ports on the other."""

import dataclasses
import http.client
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = REPOSITORY / "deploy/docker-compose.yml"
SERVICES = yaml.safe_load(FILE.read_text())["services"]
PROFILES = {profile for service in SERVICES.values() for profile in service.get("profiles", [])}
COMPOSE_V2 = ("docker", "compose")
COMPOSE_V1 = ("docker-compose",)
# Generous: no test measures it, and a healthy run takes far less. A refresh tick is a minute.
TIMEOUT = 150


class Failed(AssertionError):
    """The failure of a command that must succeed."""


def run(*command, check=True, env=None, timeout=600):
    end = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=timeout,
    )
    if check and end.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit {end.returncode}\n{end.stdout}{end.stderr}")
    return end


def until(what, probe, timeout=TIMEOUT):
    """Polls `probe` until its result is true, and names `what` at the timeout."""
    deadline = time.monotonic() + timeout
    last = None
    while time.monotonic() < deadline:
        try:
            last = probe()
        except OSError as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.2)
    raise AssertionError(f"timed out after {timeout} s waiting for {what}; last seen: {last!r}")


@dataclasses.dataclass
class Response:
    status: int
    headers: dict
    text: str

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def reason(self):
        return self.json["data"]["reason"]


def fetch(address, path, token=None, headers=(), body=None):
    """Sends one request on its own connection. `headers` are pairs, so that a name may repeat."""
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.putrequest("POST" if body is not None else "GET", path)
        if token:
            connection.putheader("Authorization", f"Bearer {token}")
        for name, value in headers:
            connection.putheader(name, value)
        data = json.dumps(body).encode() if body is not None else None
        if data is not None:
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, found, response.read().decode())
    except http.client.HTTPException as error:
        raise ConnectionError(f"no response from {address}{path}: {error!r}") from error
    finally:
        connection.close()


def needs_image_of(service, can_be_missing=False):
    """Skips a test without its public image or a stand-in; in CI only if `can_be_missing`."""
    image = SERVICES[service]["image"]
    if run("docker", "image", "inspect", image, check=False).returncode != 0:
        give_up = pytest.skip if can_be_missing or os.environ.get("CI") != "true" else pytest.fail
        give_up(f"{image} cannot be pulled here, and there is no stand-in for it")


class Stack:
    """One project of the compose file, on free ports."""

    def __init__(self, name, command=COMPOSE_V2, profile=None, **environment):
        self.name = f"{name}-{os.getpid()}"
        self.command = command
        self.profile = ("--profile", profile) if profile else ()
        ports = ("AUTH_PORT", "ORDERS_PORT", "INVOICES_PORT", "NOTES_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
        self.environment = {port: "" for port in ports} | environment

    def compose(self, *words, **options):
        command = [*self.command, "-p", self.name, "-f", FILE, *self.profile, *words]
        return run(*command, env=self.environment, **options)

    def up(self, *services):
        """Starts all services of the profile, or these and their dependencies."""
        wait = ["--wait"] if self.command == COMPOSE_V2 else []
        self.compose("up", "--detach", "--no-build", *wait, *services)

    def down(self):
        # Removes containers of all profiles as well.
        self.profile = [word for profile in PROFILES for word in ("--profile", profile)]
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", check=False)

    def logs(self, service):
        end = self.compose("logs", "--no-color", service)
        return end.stdout + end.stderr

    def container(self, service):
        found = self.compose("ps", "--all", "--quiet", service).stdout.split()
        assert len(found) == 1, f"{service}: {found}"
        return found[0]

    def inspect(self, service):
        return json.loads(run("docker", "inspect", self.container(service)).stdout)[0]

    def address(self, service, port):
        """Returns the published port, which changes with a restart."""
        return self.compose("port", service, port).stdout.strip()

    def network(self, name):
        return f"{self.name}_{name}"

    def stop(self, service):
        self.compose("stop", service)

    def start(self, service):
        self.compose("start", service)

    def healthy(self, service):
        until(
            f"{service} to be healthy",
            lambda: self.inspect(service)["State"].get("Health", {}).get("Status") == "healthy",
        )

    def login(self):
        address = self.address("auth-server", 9000)
        credentials = {"username": "ada", "password": "lovelace"}
        response = fetch(address, "/auth/oauth/jwt/token", body=credentials)
        assert response.status == 200, response
        return response.json["data"]["access_token"]

    def call(self, application, token=None, path="/list", headers=()):
        """Sends a request to an application through its sidecar."""
        address = self.address(f"{application}-sidecar", 8080)
        return fetch(address, f"/{application}{path}", token, headers)
