#!/usr/bin/env bash
# ensure-cross.sh TARGET…: sees to the standard library and the C compiler of each target that is not this
# machine's own. What cannot be installed here, `release.sh` reports.
set -euo pipefail

host=$(rustc -vV | sed -n 's/^host: //p')
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo --non-interactive)

for target in "$@"; do
    [ "$target" != "$host" ] || continue
    cpu=${target%%-*}
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
        rustup target add "$target" || true
    fi
    if ! command -v "$cpu-linux-gnu-gcc" >/dev/null && command -v apt-get >/dev/null; then
        # Debian names its packages after dpkg's architecture, the compiler after the processor.
        library=libc6-dev-$([ "$cpu" = aarch64 ] && echo arm64 || echo "$cpu")-cross
        "${as_root[@]}" apt-get update -q || true
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qy --no-install-recommends "gcc-${cpu/_/-}-linux-gnu" "$library" || true
    fi
done
