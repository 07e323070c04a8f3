# syntax=docker/dockerfile:1.7@sha256:a57df69d0ea827fb7266491f2813635de6f17269be881f696fbfdf2d83dda33e
# The image holds one static binary and the usual certificate authorities, and nothing else: no shell, no libc, no
# user database. Probes are in the manifests.
#
#   docker build -t informerd:v0.1.0 .

# The digests are those of the multi-platform indexes. `docker buildx imagetools inspect rust:1.95.0-slim-bookworm` prints
# the one that the tag has now.
FROM rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
ENV SOURCE_DATE_EPOCH=0
# Not pinned: Debian keeps only the newest version of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates cmake g++ make musl-tools \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /informerd
# Only this changes when the toolchain does.
COPY rust-toolchain.toml ./
RUN rustup target add "$(uname -m)-unknown-linux-musl"
COPY Cargo.toml Cargo.lock ./
# What `informerd version` tells of the sources: git rev-parse HEAD, git log -1 --format=%cs.
ARG INFORMERD_BUILD_COMMIT=""
ARG INFORMERD_BUILD_DATE=""
COPY build build
COPY benches benches
COPY crates crates
COPY fuzz fuzz
COPY manifests manifests
COPY proto proto
COPY sim sim
COPY src src
# The caches outlive this layer: a change of the sources compiles informerd alone.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target build/static.sh /image/informerd \
    && install -D -m 0444 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt \
    && find /image -exec touch --no-dereference --date=@0 {} +

FROM scratch
LABEL org.opencontainers.image.title="informerd" \
      org.opencontainers.image.description="One shared informer per resource in front of the kube-apiserver" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
# A number, because there are no names in the image, and because runAsNonRoot asks for one. Any other works, too.
USER 65532:65532
ENTRYPOINT ["/informerd"]
