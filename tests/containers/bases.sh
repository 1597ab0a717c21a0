# Sourced: provides the public images that deploy/Dockerfile and deploy/docker-compose.yml name.
#
# They are pulled. Without a registry, an engine of our own gets a stand-in for each under the same
# tag, made of Debian's packages and of this machine's Rust, so that the files under test stay
# unchanged. Existing images are kept: a second run takes seconds. A missing stand-in is reported
# here, and again by the tests that need the image.

standins=$(dirname "${BASH_SOURCE[0]}")/standins

# Prints the image that the files name, so that each tag is in one place only.
image_of() {
    local name=$1
    grep -hoE "(FROM|image:) +${name}:[^ ]+" deploy/Dockerfile deploy/docker-compose.yml |
        awk '{ print $2 }' | sort -u | {
        read -r image && ! read -r _ || { echo "expected one tag of $name" >&2; exit 1; }
        echo "$image"
    }
}

is_here() {
    docker image inspect "$1" >/dev/null 2>&1
}

bases_prepare() {
    local cache=$1 name image make missing=()
    for name in rust redis python node php prom/prometheus grafana/grafana nacos/nacos-server; do
        image=$(image_of "$name")
        is_here "$image" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    for name in "${missing[@]}"; do
        image=$(image_of "$name")
        if pulled "$image"; then continue; fi
        make=stand_in_for_${name##*/}
        declare -F "$make" >/dev/null || {
            echo "no registry, and nothing to make a stand-in for $image of"
            continue
        }
        engine_is_own || {
            echo "$image cannot be pulled, and stand-ins are made in an engine of our own only (POSTERN_TEST_OWN_ENGINE=1)" >&2
            return 1
        }
        echo "no registry: making a stand-in for $image"
        debian_base "$cache"
        "$make" "$image"
    done
}

no_registry=
pulled() {
    [ -z "$no_registry" ] || return 1
    timeout 120 docker pull -q "$1" >/dev/null 2>&1 && return
    no_registry=1
    return 1
}

debian_base() {
    local root=$1/debian-root
    is_here debian:bookworm-slim && return
    command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; return 1; }
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase bookworm "$root" >"$1/debootstrap.log" 2>&1 ||
        { tail -5 "$1/debootstrap.log" >&2; return 1; }
    tar --directory "$root" --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' \
        --exclude='./var/cache/apt/*' --create . | docker import - debian:bookworm-slim >/dev/null
    rm -rf --one-file-system "$root"
}

from_packages() {
    local image=$1
    shift
    docker build -q -t "$image" --build-arg PACKAGES="$*" -f "$standins/debian-package.Dockerfile" "$standins" >/dev/null
}

stand_in_for_redis() { from_packages "$1" redis-server; }
stand_in_for_python() { from_packages "$1" python3-minimal libpython3-stdlib; }
stand_in_for_node() { from_packages "$1" nodejs; }
stand_in_for_php() { from_packages "$1" php-cli; }
stand_in_for_prometheus() { docker build -q -t "$1" -f "$standins/prometheus.Dockerfile" "$standins" >/dev/null; }

# Another program with the protocol of this registry, built from source; the other tests use it,
# too.
stand_in_for_nacos-server() {
    local context program
    program=$(PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin command -v rnacos) || {
        echo "rnacos is missing: cargo install --locked rnacos"
        return 0
    }
    context=$(mktemp -d)
    cp "$standins/nacos.Dockerfile" "$context/Dockerfile"
    cp -L "$program" "$context/rnacos"
    docker build -q -t "$1" "$context" >/dev/null
    rm -rf "$context"
}

# The toolchain, the certificates that this machine trusts and its cargo settings: a stand-in
# builder reaches the same hosts as this machine.
stand_in_for_rust() {
    local context
    context=$(mktemp -d)
    mkdir "$context/cargo-home" "$context/toolchain"
    cp "$standins/rust.Dockerfile" "$context/Dockerfile"
    cp -L /etc/ssl/certs/ca-certificates.crt "$context/"
    local config=${CARGO_HOME:-$HOME/.cargo}/config.toml
    [ ! -f "$config" ] || cp "$config" "$context/cargo-home/"
    tar --directory "$(rustc --print sysroot)" --exclude=./share --create . |
        tar --directory "$context/toolchain" --extract
    docker build -q -t "$1" "$context" >/dev/null
    rm -rf "$context"
}
