#!/usr/bin/env python3
"""Writes what is in a program as a CycloneDX 1.5 document: the crates that are linked into it, with
version, licence, source and checksum. Build tools and tests are not in it.

    sbom.py PACKAGE [TARGET]  >  PACKAGE.cdx.json
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def output(*command):
    return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


def linked(name, target):
    """Name and version of all that is linked into the program. Asked of `cargo tree`: the metadata
    lists what other members of the workspace switch on as well, and macros run in the compiler."""
    only = ["--edges", "normal,no-proc-macro", "--target", target, "--prefix", "none", "--format", "{p}"]
    lines = output("cargo", "tree", "--locked", "--package", name, *only).splitlines()
    return {(words[0], words[1].removeprefix("v")) for line in lines if (words := line.split())}


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    found = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if package["license"]:
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


def document(name, target):
    metadata = json.loads(
        output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target)
    )
    there = linked(name, target)
    packages = {p["id"]: p for p in metadata["packages"] if (p["name"], p["version"]) in there}
    needs = {
        node["id"]: sorted(purl(packages[each]) for each in node["dependencies"] if each in packages)
        for node in metadata["resolve"]["nodes"]
        if node["id"] in packages
    }
    (root,) = [id for id, package in packages.items() if package["name"] == name]
    by_purl = sorted(packages.items(), key=lambda entry: purl(entry[1]))
    lock = tomllib.loads((REPOSITORY / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    program = component(packages[root], checksums) | {"type": "application"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [component(package, checksums) for id, package in by_purl if id != root],
        "dependencies": [{"ref": purl(package), "dependsOn": needs[id]} for id, package in by_purl],
    }


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    host = output("rustc", "--version", "--verbose").partition("host: ")[2].split()[0]
    target = sys.argv[2] if len(sys.argv) == 3 else host
    json.dump(document(sys.argv[1], target), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
