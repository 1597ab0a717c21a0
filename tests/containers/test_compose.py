"""The whole product on one machine, through its published ports: its functions, and those that
continue while a part of it is away."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from compose import COMPOSE_V1, REPOSITORY, Failed, Stack, run, until

APPLICATIONS = {"orders": "python", "invoices": "node", "notes": "php"}
ALIASES = [
    ("X-Current-User", '{"account": "root"}'),
    ("X_Current_User", '{"account": "root"}'),
    ("x.current.user", '{"account": "root"}'),
]
PYTHON = "python:3.13.5-slim-bookworm"


@pytest.mark.parametrize("application, language", APPLICATIONS.items())
def test_each_service_needs_a_token_and_gets_the_user(stack, application, language):
    rejected = stack.call(application)
    assert (rejected.status, rejected.reason) == (401, "token_missing")

    token = stack.login()
    for headers in [[], ALIASES]:
        response = stack.call(application, token, headers=headers)
        assert response.status == 200, response
        assert response.json["service"] == language
        assert response.json["user"]["account"] == "admin"
    details = stack.call(application, token, "/current/user/details")
    assert details.json["data"]["account"] == "admin"

    forged = token[:-8] + ("A" * 8)
    assert stack.call(application, forged).reason == "token_signature"


def test_the_sidecar_is_the_only_way_in(stack):
    service = stack.inspect("orders")
    assert not any(service["NetworkSettings"]["Ports"].values()), "no port is published"
    networks = service["NetworkSettings"]["Networks"]
    assert list(networks) == [stack.network("orders")]
    address = networks[stack.network("orders")]["IPAddress"]

    def reached(network, timeout):
        """Returns the service's names and addresses that respond in time to a container on this network."""
        code = (
            "import sys, urllib.request as r\n"
            "for host in sys.argv[2:]:\n"
            "    try: r.urlopen(f'http://{host}:3000/', timeout=int(sys.argv[1])); print(host)\n"
            "    except OSError: pass\n"
        )
        command = ["docker", "run", "--rm", "--network", stack.network(network), PYTHON, "python3", "-c", code]
        return run(*command, timeout, "orders", address).stdout.split()

    # At once: in vain each of them takes some seconds.
    others = ["invoices", "keys", "public", "login"]
    with ThreadPoolExecutor() as pool:
        own, *found = pool.map(reached, ["orders", *others], [60, 2, 2, 2, 2])
    assert own == ["orders", address], "from its own network: the attempt itself works"
    assert dict(zip(others, found)) == {network: [] for network in others}


def test_no_secret_is_in_the_configuration_or_the_logs(stack):
    for service in ["auth-server", "orders-sidecar", "redis", "register-orders"]:
        found = stack.inspect(service)
        for variable in found["Config"]["Env"]:
            name, _, value = variable.partition("=")
            assert name.endswith("_FILE") or not any(w in name for w in ["SECRET", "PASSWORD"]), name
    volume = f"{stack.name}_orders-secrets:/secrets:ro"
    read = ["docker", "run", "--rm", "--user", "65532", "--volume", volume, PYTHON, "cat", "/secrets/app-secret"]
    secret = run(*read).stdout.strip()
    assert len(secret) >= 43
    assert secret not in stack.compose("logs").stdout
    others = [word if word != "65532" else "1000" for word in read]
    assert run(*others, check=False).returncode != 0, "another user reads the secret"


def test_a_second_up_changes_nothing(stack):
    token = stack.login()
    before = {name: stack.container(name) for name in ["redis", "auth-server", "orders-sidecar"]}
    stack.up()
    assert before == {name: stack.container(name) for name in before}
    assert stack.call("orders", token).status == 200


def test_without_redis_users_and_sidecars_go_on(whole):
    token = whole.login()
    whole.stop("redis")
    until("the auth server to notice", lambda: "the key store is unavailable" in whole.logs("auth-server"))
    for application in APPLICATIONS:
        assert whole.call(application, token).status == 200
    assert whole.call("orders", whole.login()).status == 200, "the key is in memory"
    whole.start("redis")
    whole.healthy("auth-server")
    assert whole.call("orders", token).status == 200, "the key pair has outlived the outage"


def test_without_the_auth_server_running_sidecars_go_on(whole):
    token = whole.login()
    whole.stop("auth-server")
    for application in APPLICATIONS:
        assert whole.call(application, token).status == 200

    # Not `start`, which starts the dependencies as well.
    whole.compose("restart", "notes-sidecar")
    response = until("the sidecar to respond again", lambda: whole.call("notes", token))
    assert response.status == 503, response
    assert "retry-after" in response.headers
    assert whole.call("notes").reason == "token_missing"

    whole.start("auth-server")
    until("the key to arrive with the next tick", lambda: whole.call("notes", token).status == 200)


def test_without_its_service_a_sidecar_reports_it_and_recovers(whole):
    token = whole.login()
    whole.stop("invoices")
    response = until("a 502", lambda: (a := whole.call("invoices", token)).status in (502, 504) and a)
    assert response.json["success"] is False
    assert whole.call("orders", token).status == 200, "the neighbours do not notice"
    whole.start("invoices")
    until("the service to be back", lambda: whole.call("invoices", token).status == 200)


def test_a_sidecar_cut_off_from_the_auth_server_goes_on(whole):
    token = whole.login()
    network, container = whole.network("keys"), whole.container("orders-sidecar")
    seen = whole.logs("orders-sidecar").count("verification key not fetched")
    run("docker", "network", "disconnect", network, container)
    try:
        until(
            "a refresh to fail",
            lambda: whole.logs("orders-sidecar").count("verification key not fetched") > seen,
        )
        assert whole.call("orders", token).status == 200
        assert whole.call("orders", whole.login()).status == 200, "also a token of now"
        assert ready(whole, "orders-sidecar")
    finally:
        run("docker", "network", "connect", network, container)


def test_docker_stop_under_load_fails_no_accepted_request(whole):
    command = ["docker", "run", "--rm", "--network", whole.network("public")]
    command += ["--volume", f"{REPOSITORY}/tests/containers/load.py:/load.py:ro", PYTHON]
    command += ["python3", "/load.py", "orders-sidecar", "8080", "/orders/list", whole.login()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
        assert load.stdout.readline() == "under load\n", load.stderr.read()
        whole.stop("orders-sidecar")
        output, errors = load.communicate(timeout=120)
    counts = json.loads(output or "null")
    print(counts)
    assert counts, errors
    assert counts["responded"] >= 100 and counts["slow_responded"] == 4, counts
    assert counts["lost"] == counts["slow_lost"] == counts["wrong_status"] == 0, counts
    assert whole.inspect("orders-sidecar")["State"]["ExitCode"] == 0


def test_compose_1_29_runs_the_same_file():
    try:
        version = run(*COMPOSE_V1, "version", "--short").stdout
    except (Failed, FileNotFoundError):
        pytest.fail("docker-compose 1.29 is missing: apt-get install docker-compose")
    assert version.startswith("1."), version
    stack = Stack("postern-v1", COMPOSE_V1)
    try:
        # It has read all of the file by then.
        stack.up("orders-sidecar")
        until("orders to be reached", lambda: stack.call("orders").status == 401)
        until("orders to have a key", lambda: stack.call("orders", stack.login()).status == 200)
    finally:
        stack.down()


def ready(stack, service):
    program = "auth-server" if service == "auth-server" else "sidecar"
    return run("docker", "exec", stack.container(service), f"/{program}", "healthcheck", check=False).returncode == 0
