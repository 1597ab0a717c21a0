# Stands in for a public image by Debian's own package of the same program.
FROM debian:bookworm-slim
ARG PACKAGES
RUN apt-get update -q \
 && apt-get install -qy --no-install-recommends $PACKAGES \
 && rm -rf /var/lib/apt/lists/*
