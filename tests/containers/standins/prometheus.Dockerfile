# Stands in for the public Prometheus image: the same command line, user and directories.
FROM debian:bookworm-slim
RUN apt-get update -q \
 && apt-get install -qy --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir /prometheus \
 && chown nobody:nogroup /prometheus
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/usr/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
