"""The contents of the images, and the few privileges that they need."""

import json
import os

import pytest
from compose import REPOSITORY, run, until

SERVERS = ["auth-server", "sidecar"]
PROGRAMS = [*SERVERS, "postern-k8s"]
MAX_BYTES = 26 * 1000 * 1000
CONFINED = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
SERVE = {
    "auth-server": ["serve", "--users", "builtin"],
    "sidecar": ["serve", "--auth-server", "http://127.0.0.1:9000/auth", "--app-id", "a", "--app-secret", "b"],
}


def image(program, tag="dev"):
    return json.loads(run("docker", "image", "inspect", f"localhost/postern/{program}:{tag}").stdout)[0]


@pytest.fixture
def started():
    """Starts containers and removes them."""
    containers = []

    def start(program, *arguments, options=()):
        command = ["docker", "run", "--detach", *CONFINED, *options, f"localhost/postern/{program}:dev", *arguments]
        containers.append(run(*command).stdout.strip())
        return containers[-1]

    yield start
    for container in containers:
        run("docker", "rm", "--force", "--volumes", container)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_small_and_runs_as_a_number(program):
    found = image(program)
    assert found["Size"] <= MAX_BYTES, f"{found['Size']} bytes"
    config = found["Config"]
    assert config["User"] == "65532:65532"
    assert config["StopSignal"] == "SIGTERM"
    if program in SERVERS:
        assert config["Healthcheck"]["Test"] == ["CMD", f"/{program}", "healthcheck"]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert config["Labels"]["org.opencontainers.image.title"] == f"postern {program}"


def test_images_for_two_processors_differ_in_programs_alone(tmp_path):
    for program in PROGRAMS:
        container = run("docker", "create", f"localhost/postern/{program}:dev").stdout.strip()
        run("docker", "cp", f"{container}:/{program}", tmp_path / program)
        run("docker", "rm", container)
    run(REPOSITORY / "scripts/cross-images.sh", "aarch64-unknown-linux-gnu", tmp_path, "localhost", "dev")
    for program in PROGRAMS:
        own, other = image(program), image(program, "dev-arm64")
        assert (other["Architecture"], other["Size"] // 100_000) == ("arm64", own["Size"] // 100_000)
        for each in own, other:
            del each["Config"]["Labels"]["org.opencontainers.image.revision"]
            # The layer below.
            each["Config"].pop("Image", None)
        assert other["Config"] == own["Config"]
        run("docker", "rmi", f"localhost/postern/{program}:dev-arm64")


@pytest.mark.parametrize("program", PROGRAMS)
def test_there_is_no_shell_in_it(program):
    for shell in ["sh", "/bin/sh", "/bin/bash", "/busybox/sh"]:
        end = run("docker", "run", "--rm", "--entrypoint", shell, f"localhost/postern/{program}:dev", check=False)
        assert end.returncode == 127, end


@pytest.mark.parametrize("program", SERVERS)
def test_it_starts_confined_is_healthy_and_stops_at_once(started, program):
    options = ["--tmpfs", "/var/lib/postern:uid=65532,mode=0700"] if program == "auth-server" else []
    container = started(program, *SERVE[program], "--lame-duck", "0", options=options)
    expected = "healthy" if program == "auth-server" else "starting"

    def state():
        found = json.loads(run("docker", "inspect", container).stdout)[0]["State"]
        assert found["Running"], run("docker", "logs", container).stderr
        return found["Health"]

    # A sidecar without an auth server runs, and reports that it is not ready.
    until(f"{program} to be {expected}", lambda: state()["Status"] == expected and state()["Log"])
    if program == "sidecar":
        assert "verification_key" in state()["Log"][0]["Output"]
    run("docker", "stop", "--time", "20", container)
    end = json.loads(run("docker", "inspect", container).stdout)[0]["State"]
    assert (end["ExitCode"], end["OOMKilled"]) == (0, False)


def test_names_of_the_hosts_file_are_found(started):
    """Static glibc without nsswitch.conf uses DNS alone."""
    upstream = ["--upstream", "http://somewhere.invalid:3000"]

    def listening(options=()):
        container = started("sidecar", *SERVE["sidecar"], *upstream, options=options)
        until("the sidecar to listen", lambda: "listening on" in run("docker", "logs", container).stdout)
        return lambda: "does not resolve" in run("docker", "logs", container).stderr

    named = listening(["--add-host", "somewhere.invalid:127.0.0.1"])
    # Awaited after this one listens, which would have reported it by then.
    until("the unknown name to be reported", listening())
    assert not named()


def test_an_unreadable_secret_is_named_with_owner_and_mode(tmp_path):
    secret = tmp_path / "app-secret"
    secret.write_text("hush")
    secret.chmod(0o600)
    mount = f"{secret}:/secrets/app-secret:ro"
    arguments = ["check", "--auth-server", "http://a:1/auth", "--app-id", "a", "--app-secret-file", "/secrets/app-secret"]
    end = run("docker", "run", "--rm", "--volume", mount, "localhost/postern/sidecar:dev", *arguments, check=False)
    assert end.returncode == 78
    for part in ["/secrets/app-secret", f"owner uid {os.getuid()}", "mode 0600", "running as uid 65532"]:
        assert part in end.stderr, end.stderr
    assert "hush" not in end.stderr
