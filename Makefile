# The one place that knows how this repository is built and tested. `make` alone lists the targets.

.POSIX:
.PHONY: help prepare build test chaos chaos-mutants fuzz demo servers page matrix bench plots size newest install deb clean

PREFIX ?= /usr/local
# How long `make chaos` has faults and `make fuzz` tries each target, in seconds.
SECONDS_MAX ?= 60
# Where rustup puts cargo, for a shell that was not told.
export PATH := $(PATH):$(HOME)/.cargo/bin
CARGO ?= cargo

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

prepare: ## install what is missing on Debian (as root), or say what to install
	@sh tests/prerequisites.sh

build: ## build the release binary
	$(CARGO) build --release --locked

# The properties meet the same values each time; `make fuzz`, or another PROPTEST_RNG_SEED, looks for others.
test: prepare ## check format and lints, run all tests against real servers, check the documentation
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	$(CARGO) clippy --all-targets --locked --features mutants -- -D warnings
	PROPTEST_RNG_SEED="$${PROPTEST_RNG_SEED:-1}" RUST_TEST_THREADS="$${RUST_TEST_THREADS:-$$(($$(nproc) * 2))}" \
		$(CARGO) test --locked
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --locked

# Without optimisation, as all tests are: arithmetic is checked. PROFILE=release for the binary as it is used.
chaos: prepare ## prove it under faults by chance: SECONDS_MAX=180 SEED=7, both as you like
	SECONDS_MAX="$(SECONDS_MAX)" SEED="$(SEED)" KINDS="$(KINDS)" $(CARGO) test --locked \
		--profile "$${PROFILE:-dev}" --test chaos

# A folder of its own: a relay with defects must not lie where somebody may take it for the relay.
chaos-mutants: prepare ## show that the chaos run finds known defects; MUTANT=kill-switch-off for one of them
	MUTANT="$(MUTANT)" SEED="$(SEED)" $(CARGO) test --locked --features mutants \
		--target-dir "$${CARGO_TARGET_DIR:-target}/mutants" --test chaos -- mutants

fuzz: ## try each fuzz target for SECONDS_MAX seconds (60)
	@sh fuzz/run.sh "$(SECONDS_MAX)"

demo: prepare ## show the relay at work on servers of its own
	$(CARGO) build --release --locked
	$(CARGO) run --release --example demo --locked

servers: prepare ## start private servers to try the examples on, until Ctrl-C
	@$(CARGO) run --release --example demo --locked -- servers

page: ## take pictures of the status page of a relay with trouble in it
	@sh tests/prerequisites.sh page
	$(CARGO) build --release --locked
	$(CARGO) run --release --example page --locked

matrix: ## run the tests on newer servers, which it fetches (as root); PAIRS, ROOTS and TESTS say which
	@sh tests/prerequisites.sh matrix
	@sh tests/matrix.sh

bench: prepare size ## measure the relay, write benches/FIGURES.md and draw benches/plots; NEWER has another RabbitMQ
	$(CARGO) bench --bench relay --locked
	@newer="$${NEWER:-$${ROOTS:-$${CARGO_TARGET_DIR:-target}/roots}/sid}"; \
	if [ -d "$$newer/usr" ]; then \
		OUTBOXD_TEST_RABBITMQ_ROOT="$$(cd "$$newer" && pwd)" $(CARGO) bench --bench relay --locked -- drain curves; \
	else \
		echo "no other RabbitMQ in $$newer: \`make matrix\` fetches one"; \
	fi

plots: ## draw benches/plots again, of what was measured last
	$(CARGO) bench --bench relay --locked -- plots

size: prepare ## measure binary, memory, start and crates, without TLS and with it
	$(CARGO) bench --bench size --locked --no-default-features
	$(CARGO) bench --bench size --locked

newest: ## build with every toolchain at hand, to learn early when one refuses a dependency
	@for toolchain in $$(rustup toolchain list 2>/dev/null | cut -d' ' -f1); do \
		echo "$$toolchain: $$($(CARGO) +$$toolchain --version)"; \
		$(CARGO) +$$toolchain check --locked --all-features --target-dir target/newest || exit 1; \
	done
	@echo "what a later compiler will refuse, as far as this one knows:"
	@$(CARGO) check --locked --all-features --target-dir target/newest --config 'future-incompat-report.frequency="always"' 2>&1 | grep -A1 'future version' || echo "nothing"

install: build ## install the binary; PREFIX and DESTDIR say where
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$${CARGO_TARGET_DIR:-target}/release/outboxd" "$(DESTDIR)$(PREFIX)/bin/outboxd"

deb: build ## build a Debian package of the release binary, and say where it is
	@sh packaging/deb.sh

clean: ## remove what was built
	$(CARGO) clean
