# Stands in for the public Rust image: the same tools, from Debian and from this machine's
# toolchain.
FROM debian:bookworm-slim
RUN apt-get update -q \
 && apt-get install -qy --no-install-recommends ca-certificates cmake gcc libc6-dev make
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH
COPY cargo-home /usr/local/cargo
COPY toolchain /usr/local/cargo
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
