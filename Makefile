# `make test` is the one command that proves everything: it brings up a real Kafka and a real schema registry, runs every
# test, and takes them down.

CARGO ?= cargo

.PHONY: test faults build lint fmt bench release image sim mutants

test: build
	scripts/with-registry scripts/with-kafka $(CARGO) test --workspace --locked --no-fail-fast

build:
	$(CARGO) build --workspace --bins --locked

# All faults, 10 times each; docs/faults.md tells what ROWS, TIMES, JOBS, WORKERS and SOAK_MINUTES can be.
faults: release
	STARLING_FAULTS_ROWS="$(or $(ROWS),all)" STARLING_FAULTS_TIMES="$(or $(TIMES),10)" \
		STARLING_FAULTS_JOBS="$(JOBS)" STARLING_E2E_SWARMS="$(JOBS)" \
		STARLING_FAULTS_WORKERS="$(WORKERS)" STARLING_FAULTS_SOAK_MINUTES="$(SOAK_MINUTES)" \
		scripts/with-kafka $(CARGO) test --release --locked -p starling-e2e --test faults

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

# The container image: one program under four names.
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
