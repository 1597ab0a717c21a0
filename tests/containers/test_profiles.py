"""The profiles of the compose file: a registry, and monitoring."""

import json
import re
from urllib.parse import urlencode

import pytest
from compose import REPOSITORY, SERVICES, Stack, fetch, needs_image_of, until

APPLICATIONS = ["orders", "invoices", "notes"]
DASHBOARD = json.loads((REPOSITORY / "deploy/grafana/postern.json").read_text())


@pytest.mark.parametrize("profile, services", [("observability", {"prometheus", "grafana"}), ("nacos", {"nacos"})])
def test_a_profile_adds_its_services_and_nothing_else(profile, services):
    def listed(*profiles):
        stack = Stack("postern-listed", profile=profiles[0] if profiles else None)
        return set(stack.compose("config", "--services").stdout.split())

    assert listed(profile) - listed() == services


# ---- nacos: the settings of docs/compose.md, and nothing more ----


@pytest.fixture(scope="module")
def registered():
    needs_image_of("nacos")
    settings = {"POSTERN_REGISTRY": "nacos://nacos:8848", "POSTERN_AUTH_SERVER": "nacos://nacos:8848/auth"}
    stack = Stack("postern-nacos", profile="nacos", **settings)
    try:
        stack.up()
        yield stack
    finally:
        stack.down()


def test_sidecars_find_the_auth_server_through_the_registry(registered):
    token = registered.login()
    for application in APPLICATIONS:
        assert registered.call(application, token).status == 200
        assert registered.call(application).reason == "token_missing"


def test_without_the_registry_users_and_sidecars_go_on(registered):
    token = registered.login()
    registered.stop("nacos")
    for application in APPLICATIONS:
        assert registered.call(application, token).status == 200
    assert registered.call("orders", registered.login()).status == 200
    registered.start("nacos")
    # Its state is gone; the auth server registers again.
    registered.compose("restart", "notes-sidecar")
    until("a sidecar of now to find the auth server", lambda: registered.call("notes", token).status == 200)


# ---- observability ----


@pytest.fixture(scope="module")
def observed(stack):
    """Returns the stack with Prometheus, without Grafana: not every machine has its image."""
    needs_image_of("prometheus")
    watched = Stack("postern-test", profile="observability")
    watched.up("prometheus")
    token = watched.login()
    for application in APPLICATIONS:
        for sent in [token, None, token[:-8] + "A" * 8]:
            watched.call(application, sent)
    assert fetch(watched.address("auth-server", 9000), "/auth/elsewhere").status == 401
    return watched


def prometheus(stack, path, **query):
    response = fetch(stack.address("prometheus", 9090), f"/api/v1/{path}?{urlencode(query)}")
    assert response.status == 200, (query, response)
    return response.json["data"]


def test_prometheus_reaches_every_program(observed):
    def targets():
        found = prometheus(observed, "targets")["activeTargets"]
        return all(each["health"] == "up" for each in found) and found

    found = until("every program to be scraped", targets)
    programs = {name for name in SERVICES if name == "auth-server" or name.endswith("-sidecar")}
    assert {each["labels"]["instance"].partition(":")[0] for each in found} == programs


def test_the_alerts_are_loaded_and_none_fires_but_for_what_is_so(observed):
    def rules():
        found = [rule for group in prometheus(observed, "rules")["groups"] for rule in group["rules"]]
        return found and all(rule["health"] == "ok" for rule in found) and found

    found = until("every rule to be evaluated", rules)
    text = (REPOSITORY / "deploy/prometheus/postern.rules.yml").read_text()
    assert len(found) == text.count("- alert:")
    # The alert on the built-in user, which this stack has, fires only after an hour.
    assert {rule["name"] for rule in found if rule["state"] == "pending"} <= {"PosternBuiltinUsers"}
    assert not [rule["name"] for rule in found if rule["state"] == "firing"]


def test_the_alerts_fire_when_they_should(observed):
    # The container is read-only except for its data, and promtool needs a temporary directory.
    promtool = ("-e", "TMPDIR=/prometheus", "prometheus", "promtool", "test", "rules")
    end = observed.compose("exec", "-T", *promtool, "/etc/prometheus/postern.rules.test.yml")
    assert "SUCCESS" in end.stdout, end.stdout


def queries():
    """Yields title and query of each panel, with the dashboard's variables filled in."""
    filled = {"$job": ".*", "$instance": ".*", "$__rate_interval": "1m", "$__interval": "15s", "$__range": "1h"}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            query = re.sub("|".join(map(re.escape, filled)), lambda found: filled[found[0]], target["expr"])
            yield panel["title"], query


# The stack has no rules.
EMPTY = {"Rejections by rule"}


@pytest.mark.parametrize("title, query", [each for each in queries() if each[0] not in EMPTY])
def test_a_panel_of_the_dashboard_shows_something(observed, title, query):
    assert "$" not in query

    def values():
        if title == "Rejections by reason":
            # They show what was rejected in the last minute, and nothing else.
            observed.call("orders")
            fetch(observed.address("auth-server", 9000), "/auth/elsewhere")
        return prometheus(observed, "query", query=query)["result"]

    # A rate needs two scrapes with the requests of above between them.
    until(f"{title} to show something", values, timeout=60)


def test_grafana_has_the_dashboard_without_a_login(observed):
    needs_image_of("grafana", can_be_missing=True)
    observed.up()
    address = observed.address("grafana", 3000)
    until("Grafana to respond", lambda: fetch(address, "/api/health").status == 200)
    found = until("the dashboard to be loaded", lambda: fetch(address, f"/api/dashboards/uid/{DASHBOARD['uid']}"))
    assert found.status == 200 and found.json["dashboard"]["title"] == DASHBOARD["title"], found
    through = f"/api/datasources/proxy/uid/prometheus/api/v1/query?{urlencode({'query': 'up'})}"
    response = until("Grafana to reach Prometheus", lambda: (a := fetch(address, through)).status == 200 and a)
    assert response.json["data"]["result"]
