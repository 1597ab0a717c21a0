#!/bin/sh
# Makes the secrets of the compose stack, once: each a file of its reader's own volume that only its
# reader may read. Runs as root with no right but to give files away.
set -eu
umask 077

# give UID FILE: what stands on standard input becomes the file, whole or not at all.
give() {
    cat > "$2.new"
    chmod 0400 "$2.new"
    chown "$1:$1" "$2.new"
    mv "$2.new" "$2"
}

random() {
    head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'
}

redis=999
postern=65532

# Redis takes its password from its configuration, the auth server from a file: both or neither.
if ! [ -e /secrets/redis/redis.conf ] || ! [ -e /secrets/auth-server/store-password ]; then
    password=$(random)
    printf 'requirepass %s\nappendonly yes\ndir /data\n' "$password" | give $redis /secrets/redis/redis.conf
    printf '%s\n' "$password" | give $postern /secrets/auth-server/store-password
fi
for application in orders invoices notes; do
    secret=/secrets/$application/app-secret
    [ -e "$secret" ] || random | give $postern "$secret"
done

# A new volume is root's; what serves from it is not.
chown $redis:$redis /data
