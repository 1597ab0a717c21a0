# Sourced: starts a Docker engine, and stops it again.
#
# A running engine is used as it is. Otherwise one is started with its state in the cache, and
# stopped by its own process id. Stand-ins for public images are made in that one only: they carry
# public tags, which no other engine must have.

engine_pid=
engine_dir=
engine_lock=

engine_start() {
    local cache=$1
    # One run at a time uses the state in the cache; the engine's processes do not inherit the lock.
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
    # Socket paths have a max length: not below a deep temporary directory.
    engine_dir=$(mktemp -d /tmp/postern-engine.XXXXXX)
    export DOCKER_HOST=unix://$engine_dir/docker.sock
    # A session of its own: Ctrl-C ends the tests first, and they need the engine for cleaning up.
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

# Stops the engine of a killed run. The lock excludes a second run, and two engines must not share
# one state.
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
    # Mounts of aborted containers; the directory cannot be removed before them.
    awk -v dir="$engine_dir/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r mount; do umount -l "$mount" 2>/dev/null || true; done
    rm -rf "$engine_dir"
}
