"""The real programs, run with the settings of the manifests."""

import base64
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
from kubernetes import REPOSITORY, program, settings

DOCKERFILE = (REPOSITORY / "deploy/Dockerfile").read_text()


def path(name):
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    found = Path(os.environ.get("POSTERN_TEST_PROGRAMS", target / "debug")) / name
    assert found.is_file(), f"{found} is missing: cargo build --workspace --bins"
    return found


def environment(values):
    """Returns an environment without variables of this shell, which could configure a program."""
    return {"PATH": os.environ["PATH"], **values}


def run(name, *arguments, values=None, stdin=None):
    command = [path(name), *arguments]
    return subprocess.run(
        command, env=environment(values or {}), capture_output=True, text=True, timeout=60, input=stdin
    )


def check_with_secret(identity, extra_group, owner, group, mode):
    """Runs `check` as a container does that has this identity, and a secret of this owner, group and mode."""
    # A directory that another user may read.
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        copy = shutil.copy(path("sidecar"), directory)
        secret = Path(directory) / "app-secret"
        secret.write_text("x" * 32)
        os.chown(secret, owner, group)
        secret.chmod(mode)
        command = [copy, "check", "--auth-server", "http://auth:9000/auth", "--app-id", "a", "--app-secret-file", secret]
        user = {"user": identity["runAsUser"], "group": identity["runAsGroup"], "extra_groups": [extra_group]}
        return subprocess.run(command, **user, env={}, capture_output=True, text=True)


def checked(name, values):
    """Returns the end of `check` in the program's image with these variables."""
    stage = DOCKERFILE.partition(f"\nFROM root AS {name}\n")[2].partition("\nFROM ")[0]
    brought = dict(re.findall(r"(POSTERN_DEFAULT_\w+)=(\S+)", stage))
    return run(name, "check", values={**brought, **values})


def accepted(name, values):
    """Returns the configuration that these variables make, which the program and its schema accept."""
    end = checked(name, values)
    assert end.returncode == 0, end.stderr
    schema = json.loads((REPOSITORY / f"docs/schema/{name}.json").read_text())
    jsonschema.validate(tomllib.loads(end.stdout), schema)
    return end.stdout


def variables(name):
    """Returns the variable of each setting of `serve`."""
    flags = re.findall(r"^ +--([a-z0-9-]+)", run(name, "serve", "--help").stdout, re.MULTILINE)
    return {"POSTERN_" + flag.upper().replace("-", "_") for flag in flags}


class Mounts:
    """The files of a container's mounts, on this machine."""

    def __init__(self, directory):
        self.directory = directory
        self.made = {}

    def localised(self, container):
        """Returns the container's settings, with an existing file for each path of a mount."""
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        return {name: self.replaced(value, mounts) for name, value in settings(container).items()}

    def arguments(self, container):
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        return [self.replaced(word, mounts) for word in container.get("args", [])]

    def replaced(self, value, mounts):
        scheme, _, file = value.rpartition("file:") if value.startswith("file:") else ("", "", value)
        if not any(file.startswith(mount + "/") for mount in mounts):
            return value
        local = self.directory / file.lstrip("/")
        if local not in self.made:
            self.made[local] = self.make(local)
        return value.replace(file, str(local))

    def make(self, local):
        local.parent.mkdir(parents=True, exist_ok=True)
        if local.name in ("tls.crt", "tls.key", "ca.crt"):
            self.certificate(local.parent)
            return local
        if local.name == "users.toml":
            user = ["user", "add", "--users", f"file:{local}", "--account", "ada", "--password-stdin"]
            end = run("auth-server", *user, stdin="correct horse battery staple\n")
            assert end.returncode == 0, end.stderr
            return local
        if local.name == "sidecar.toml":
            local.write_text('[[issuer]]\nname = "any"\nissuer = "https://id.example.com"\ndiscovery = true\naudience = ["a"]\n')
            return local
        if local.name not in ("keys", "keys.json"):
            local.write_text(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("="))
            local.chmod(0o600)
        return local

    @staticmethod
    def certificate(directory):
        key, certificate = directory / "tls.key", directory / "tls.crt"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-subj", "/CN=auth", "-addext", "subjectAltName=DNS:auth", "-days", "2"]
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        key.chmod(0o600)
        (directory / "ca.crt").write_text(certificate.read_text())


class Running:
    """A program that serves, and its admin port."""

    def __init__(self, container, mounts):
        free = {"POSTERN_LISTEN": "127.0.0.1:0", "POSTERN_ADMIN_LISTEN": "127.0.0.1:0", "POSTERN_LAME_DUCK": "0"}
        # As text, the addresses are on standard output.
        free["POSTERN_LOG_FORMAT"] = "text"
        values = {**mounts.localised(container), **free}
        command = [path(program(container)), *mounts.arguments(container)]
        self.process = subprocess.Popen(
            command, env=environment(values), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.admin = None

    def __enter__(self):
        for line in self.process.stdout:
            if line.startswith("admin listening on "):
                self.admin = line.removeprefix("admin listening on ").strip()
                return self
        raise AssertionError(self.process.stderr.read())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=60)

    def status(self, path):
        try:
            return urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5).status
        except urllib.error.HTTPError as error:
            return error.code

    def reaches(self, path, status, timeout=30):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if (last := self.status(path)) == status:
                return
            time.sleep(0.05)
        raise AssertionError(f"{path} responds {last}, not {status}")
