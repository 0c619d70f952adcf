# `make test` is the one command that proves everything: it brings up a real Kafka and a real schema registry, runs every
# test, and takes them down.

CARGO ?= cargo

.PHONY: test build lint fmt bench release image

test: build
	scripts/with-registry scripts/with-kafka $(CARGO) test --workspace --locked --no-fail-fast

build:
	$(CARGO) build --workspace --bins --locked

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

fmt:
	$(CARGO) fmt --all

release:
	$(CARGO) build --workspace --bins --release --locked

# The figures of README.md and ARCHITECTURE.md.
bench: release
	scripts/with-kafka scripts/bench

# The container image of all programs.
image:
	docker build --tag starling \
		--build-arg VERSION="$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)" \
		--build-arg REVISION="$$(git rev-parse HEAD)" .
