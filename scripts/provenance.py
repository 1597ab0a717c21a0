#!/usr/bin/env python3
"""provenance.py DIRECTORY: prints where the files of a release come from, as an in-toto statement with SLSA's
provenance (https://slsa.dev/spec/v1.0/provenance).

  TARGETS, REGISTRY   as for the release; images are named where the engine has them
  BUILDER             the URI of who builds, in which a verifier trusts
"""

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

PROGRAMS = ["auth-server", "sidecar", "postern-k8s"]


def output(*command):
    """Returns the first line of a command's output; nothing where it fails."""
    try:
        end = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return end.stdout.strip().partition("\n")[0] if end.returncode == 0 else ""


def of_file(path, name):
    return {"name": name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}


def of_image(name):
    kind, _, digest = output("docker", "image", "inspect", "--format", "{{.Id}}", name).partition(":")
    return [{"name": name, "digest": {kind: digest}}] if digest else []


def bases():
    """Returns the images that the Dockerfile begins with."""
    lines = Path("deploy/Dockerfile").read_text().splitlines()
    words = {line.split()[1] for line in lines if line.startswith("FROM ")}
    return sorted(word for word in words if ":" in word)


def materials():
    commit = output("git", "rev-parse", "HEAD")
    dirty = bool(output("git", "status", "--porcelain"))
    yield {"name": "source", "digest": {"gitCommit": commit}, "annotations": {"dirty": dirty}}
    yield of_file(Path("Cargo.lock"), "Cargo.lock")
    toolchain = tomllib.loads(Path("rust-toolchain.toml").read_text())["toolchain"]["channel"]
    yield {"name": "rust", "uri": f"pkg:generic/rust@{toolchain}", "annotations": {"rustc": output("rustc", "--version")}}
    for base in bases():
        name, _, tag = base.partition(":")
        found = of_image(base) or [{"name": base}]
        yield {**found[0], "uri": f"pkg:docker/{name}@{tag}"}


def main():
    directory = Path(sys.argv[1])
    version = tomllib.loads(Path("Cargo.toml").read_text())["workspace"]["package"]["version"]
    registry = os.environ.get("REGISTRY", "localhost")
    images = [f"{registry}/postern/{program}:{version}" for program in PROGRAMS]
    subjects = [of_file(path, path.name) for path in sorted(directory.iterdir()) if path.is_file()]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects + [each for image in images for each in of_image(image)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:postern:scripts/release.sh",
                "externalParameters": {"version": version, "targets": os.environ.get("TARGETS", "").split()},
                "resolvedDependencies": list(materials()),
            },
            "runDetails": {"builder": {"id": os.environ.get("BUILDER", "urn:postern:unnamed-builder")}},
        },
    }
    json.dump(statement, sys.stdout, indent=2)
    print()


main()
