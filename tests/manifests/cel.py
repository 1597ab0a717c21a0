"""The language of admission policies: expressions are checked and evaluated by an implementation that knows types."""

import json
import subprocess
from functools import cache

from kubernetes import REPOSITORY

# What the API server declares for them; the members of `request` that no expression here uses are left out.
OF_CONDITIONS = {"object": "dyn", "oldObject": "dyn", "request": "dyn"}
OF_POLICIES = {**OF_CONDITIONS, "params": "dyn", "namespaceObject": "dyn"}
# The types that each kind of expression may have.
BOOL, TEXT, NOTE = {"bool"}, {"string"}, {"string", "null"}


@cache
def process():
    command = ["node", REPOSITORY / "tests/interop/cel.mjs"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def result(task):
    ours = process()
    ours.stdin.write(json.dumps(task) + "\n")
    ours.stdin.flush()
    return json.loads(ours.stdout.readline())


def errors(declared, expressions, variables=()):
    """Returns what is wrong with expressions, each given with the types that it may have."""
    task = {"declared": declared, "variables": list(variables), "expressions": [text for text, _ in expressions]}
    found = result({**task, "values": None})
    types = zip(expressions, found["types"])
    others = [f"{text}: is {type}" for (text, allowed), type in types if not found["errors"] and type not in allowed]
    return found["errors"] + others


def evaluate(declared, expressions, values, variables=()):
    """Returns the values of expressions."""
    task = {"declared": declared, "variables": list(variables), "expressions": expressions, "values": values}
    found = result(task)
    assert not found["errors"], found["errors"]
    return found["values"]


def errors_of_policy(policy):
    """Returns what the API server would say of a ValidatingAdmissionPolicy."""
    spec = policy["spec"]
    conditions = [(each["expression"], BOOL) for each in spec.get("matchConditions", [])]
    validations = spec.get("validations", [])
    rest = [(each["expression"], BOOL) for each in validations]
    rest += [(each["messageExpression"], TEXT) for each in validations if "messageExpression" in each]
    rest += [(each["valueExpression"], NOTE) for each in spec.get("auditAnnotations", [])]
    return errors(OF_CONDITIONS, conditions) + errors(OF_POLICIES, rest, spec.get("variables", []))


def errors_of_webhooks(configuration):
    """Returns what the API server would say of the conditions of a configuration of webhooks."""
    conditions = [each for hook in configuration["webhooks"] for each in hook.get("matchConditions", [])]
    return errors(OF_CONDITIONS, [(each["expression"], BOOL) for each in conditions])
