# Stands in for the public Nacos image by another program that speaks its protocol on the same ports.
FROM debian:bookworm-slim
COPY rnacos /usr/local/bin/
WORKDIR /data
ENTRYPOINT ["rnacos"]
