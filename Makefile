# `make test` is the one command that proves everything: it brings up a real Kafka and a real schema registry, runs every
# test, and takes them down.

CARGO ?= cargo

.PHONY: test build lint fmt bench release image sim mutants

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

# The whole swarm in virtual time, with faults drawn from seeds: `make sim SEEDS=100000`, or one of them: `make sim SEED=17`.
SEEDS ?= 2000
FROM ?= 1
sim:
	$(CARGO) build --release --locked -p starling-sim
ifdef SEED
	$(CARGO) run --release --locked -q -p starling-sim -- seed $(SEED)
else
	$(CARGO) run --release --locked -q -p starling-sim -- seeds --count $(SEEDS) --from $(FROM)
endif

# Breaks the code on purpose, in a copy, and checks that the simulation notices: `make mutants`, `make mutants ONLY=name`.
mutants:
	scripts/mutants $(ONLY)
