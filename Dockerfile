# One image for all services and the command line:
#
#   docker build -t starling .
#   docker run --rm starling starling run "Three names for a bird café"
#
# Nothing here needs BuildKit; with it, and with the classic builder, the dependencies are compiled again only when a
# manifest or Cargo.lock changes. The image has no HEALTHCHECK, because it is also the one-shot command line: whoever
# runs a service from it checks with `starling health`, as docker-compose.yml does.

# Debian of the same release in both, so that the C library fits.
ARG RUST_IMAGE=rust:1.95-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim

# ---- The workspace without its code: manifests, and an empty file for each target that they imply or name.
FROM ${RUST_IMAGE} AS skeleton
WORKDIR /source
COPY . .
# This step runs at each change, but as its result is compared by content, the steps that copy it do not.
RUN set -eu; \
    find . -name Cargo.toml | while read -r manifest; do \
      crate=${manifest%/*}; \
      mkdir -p "/skeleton/$crate"; \
      cp "$manifest" "/skeleton/$crate/"; \
      for target in src/lib.rs src/main.rs build.rs; do \
        [ ! -e "$crate/$target" ] || printf '%s\n' "$crate/$target"; \
      done; \
      awk -v crate="$crate" '/^\[/ { test = $0 ~ /^\[\[(test|bench)\]\]/ } \
        test && /^name *=/ { split($0, part, "\""); print crate "/tests/" part[2] ".rs" }' "$manifest"; \
    done | while read -r target; do \
      mkdir -p "/skeleton/${target%/*}"; \
      case $target in \
        */lib.rs) : >"/skeleton/$target" ;; \
        *) echo 'fn main() {}' >"/skeleton/$target" ;; \
      esac; \
    done; \
    cp Cargo.lock /skeleton/

# ---- The programs.
FROM ${RUST_IMAGE} AS build
# Line tables of the release profile are for profiling on a developer's machine; here they would be 85 % of the image.
# A panic names its place in the source all the same. OpenSSL is that of Debian, and not a copy within the program.
ENV CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never OPENSSL_NO_VENDOR=1 \
    CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=symbols
WORKDIR /source
COPY --from=skeleton /skeleton .
# Exactly the command of the next step: the same packages, and so the same features of every dependency.
RUN cargo build --release --locked --package starling
COPY . .
# Files keep the times of the checkout, which may be older than the empty ones that were compiled before; cargo goes
# by the times, so every file becomes new.
RUN find . -path ./target -prune -o -type f -exec touch {} + && \
    cargo build --release --locked --package starling
# Called by the name of a service the program is that service. Beside it: the libraries that it loads and a base with a C
# library alone would lack, and the certificate authorities by which it knows model endpoints and brokers.
RUN set -eu; \
    mkdir -p /image/usr/local/bin /image/usr/share/doc/starling /image/etc/ssl/certs; \
    cp target/release/starling /image/usr/local/bin/; \
    for service in planner worker critic; do \
      ln -s starling "/image/usr/local/bin/starling-$service"; \
    done; \
    ldd target/release/starling | awk '$2 == "=>" { print $3 }' | sort -u | \
      grep -Ev '/(libc|libm|libdl|librt|libpthread|libgcc_s)\.so' | while read -r library; do \
        folder=/image$(readlink -f "${library%/*}"); \
        mkdir -p "$folder"; \
        cp -L "$library" "$folder/"; \
      done; \
    cp LICENSE /image/usr/share/doc/starling/; \
    cp -L /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/

# ---- What runs.
FROM ${RUNTIME_IMAGE}
COPY --from=build /image /
# Mount another file and name it here to trust other authorities for model endpoints.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
# By number, so that an orchestrator can tell that it is not root.
USER 10001:10001
EXPOSE 9464
CMD ["starling", "--help"]
ARG VERSION=unversioned
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Starling" \
      org.opencontainers.image.description="One intent in, one answer out: a swarm of LLM agents over Kafka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
