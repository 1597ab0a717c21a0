# A machine for systemd, which is process 1 here. The programs are those of the images, in the place
# where a build leaves them in a checkout.
FROM debian:bookworm-slim
RUN apt-get update -q \
 && apt-get install -qy --no-install-recommends curl dbus libpython3-stdlib python3-minimal systemd systemd-sysv \
 && rm -rf /var/lib/apt/lists/*
COPY --from=localhost/postern/auth-server:dev /auth-server /src/target/release/
COPY --from=localhost/postern/sidecar:dev /sidecar /src/target/release/
WORKDIR /src
STOPSIGNAL SIGRTMIN+3
# Units see the mounts that systemd makes for them: as on a machine, and unlike in a container.
CMD ["sh", "-c", "mount --make-rshared / && exec /sbin/init"]
