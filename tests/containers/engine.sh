# Sourced: gives a Docker engine to talk to, and takes it away again.
#
# An engine that runs already is used as it is. Where none runs, one is started with its state in the
# cache and ended by its own process id. Only in that one are stand-ins for public images made: they
# carry public tags, and no other engine must find them there.

engine_pid=
engine_dir=
engine_lock=

engine_start() {
    local cache=$1
    # One run at a time uses the state in the cache; what the engine starts does not hold on to this.
    exec {engine_lock}>"$cache/containers.lock"
    flock "$engine_lock"
    if [ -z "${POSTERN_TEST_OWN_ENGINE:-}" ] && docker info >/dev/null 2>&1; then
        return
    fi
    command -v dockerd >/dev/null || {
        echo "no Docker engine runs, and dockerd is not installed: apt-get install docker.io iptables" >&2
        return 1
    }
    engine_end_leftover "$cache"
    # Its sockets have long names: not below a deep temporary directory.
    engine_dir=$(mktemp -d /tmp/postern-engine.XXXXXX)
    export DOCKER_HOST=unix://$engine_dir/docker.sock
    # A session of its own: Ctrl-C ends the tests first, and they still need it for cleaning up.
    setsid dockerd --data-root "$cache/docker" --exec-root "$engine_dir/exec" \
        --pidfile "$cache/docker.pid" --host "$DOCKER_HOST" >"$engine_dir/log" 2>&1 </dev/null {engine_lock}>&- &
    engine_pid=$!
    for _ in {1..120}; do
        docker info >/dev/null 2>&1 && return
        kill -0 "$engine_pid" 2>/dev/null || break
        sleep 0.5
    done
    tail -20 "$engine_dir/log" >&2
    echo "dockerd did not start" >&2
    return 1
}

# The engine of a run that was killed, of which there is no second one (run.sh): two engines on one
# state are one too many.
engine_end_leftover() {
    local pid
    pid=$(cat "$1/docker.pid" 2>/dev/null) || return 0
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "--data-root $1/docker " || return 0
    echo "ending the engine of a run that was killed"
    kill "$pid"
    for _ in {1..60}; do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.5
    done
    echo "it does not end: $pid" >&2
    return 1
}

engine_is_own() {
    [ -n "$engine_pid" ]
}

engine_stop() {
    engine_is_own || return 0
    kill "$engine_pid" 2>/dev/null || true
    wait "$engine_pid" 2>/dev/null || true
    engine_pid=
    # Mounts of containers that were cut off; the directory cannot go before them.
    awk -v dir="$engine_dir/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r mount; do umount -l "$mount" 2>/dev/null || true; done
    rm -rf "$engine_dir"
}
