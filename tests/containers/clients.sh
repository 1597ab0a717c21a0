# Sourced: provides version 2 of `docker compose`. Debian 12 has only 1.29, which is tested as well;
# newer Debian's plugin is one file that runs here, too.

plugin=pool/main/d/docker-compose/docker-compose_2.26.1-4_amd64.deb
plugin_sha256=47681197cb2b1ab88206b42a1a92fc75f50d9530a6322d03494a473eed0408ea

# Prints this machine's package archive, if it is Debian's.
debian_archive() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' |
        sed -n '1s,/$,,p' | grep . || { echo "no archive of Debian is known here: install docker compose 2" >&2; return 1; }
}

clients_prepare() {
    docker compose version >/dev/null 2>&1 && return
    local plugins=$1/docker-cli/cli-plugins package
    if ! [ -x "$plugins/docker-compose" ]; then
        echo "docker compose is missing: taking the plugin of Debian 13"
        package=$(mktemp)
        curl --fail --silent --show-error --location --output "$package" "$(debian_archive)/$plugin"
        echo "$plugin_sha256  $package" | sha256sum --check --quiet
        mkdir -p "$plugins"
        dpkg-deb --fsys-tarfile "$package" |
            tar --extract --to-stdout ./usr/libexec/docker/cli-plugins/docker-compose >"$plugins/docker-compose.new"
        rm "$package"
        chmod +x "$plugins/docker-compose.new"
        mv "$plugins/docker-compose.new" "$plugins/docker-compose"
    fi
    # Keeps the settings of the user unchanged.
    export DOCKER_CONFIG=$1/docker-cli
    docker compose version >/dev/null
}
