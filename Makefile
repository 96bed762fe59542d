# Build, test, install. `make help` lists the targets.
PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# Where `install` takes the built files from.
BUILD ?= $(TARGET_DIR)/release
ADVERB := $(abspath $(BUILD))/adverb
SIM = $(CARGO) run --profile sim --package adverb-sim -- --from $(or $(FROM),0) --jobs $(or $(JOBS),1)
FOREIGN := $(CARGO) test --package adverb-foreign
INTEROP := $(CARGO) test --package adverb-interop
KILL = $(CARGO) run --release --package adverb-bench --bin kill -- --seed $(or $(SEED),1)

GIGABYTE = $(BUILD)/gigabyte

.PHONY: all build demo test deps unit loom sim sim-long kill-short kill-long scribble fuzz fuzz-short goodput gigabyte gigabyte-short foreign foreign-short foreign-wire foreign-wire-short interop interop-short interop-bench lint lint-tree tsan bench bench-local scale armed mutants ids install uninstall help

all: build

build: ## the command and the drop-in libraries, optimised
	$(CARGO) build --release --workspace --exclude adverb-foreign --exclude adverb-interop

demo: build ## two processes, every operation, a table of figures
	$(BUILD)/adverb demo

test: deps unit gigabyte-short foreign foreign-wire-short ## everything: install what tests need, then unit tests and foreign programs, on both paths

deps:
	scripts/test-deps

unit: ids ## tests of our own crates
	$(CARGO) test --workspace --exclude adverb-foreign --exclude adverb-interop

loom: ## the races of completion queues (CQN-12) and of memory shared between processes, by model checking; takes a minute
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom $(CARGO) test --package adverb-sync --package adverb-device --package adverb-link --lib --release loom_

sim: ## the simulator: a thousand seeds, checked by an oracle (SEEDS=, FROM=, JOBS=)
	$(SIM) --seeds $(or $(SEEDS),1000)

sim-long: ## the same for hours: make sim-long SEEDS=10000000 FROM=1000000
	$(SIM) --seeds $(or $(SEEDS),1000000)

kill-short: ## twenty processes killed in the middle of what they do with another, which has to survive them (SEED=)
	$(KILL) --rounds 20

kill-long: ## a thousand of them (SEED=, ROUNDS=); several minutes
	$(KILL) --rounds $(or $(ROUNDS),1000)

fuzz: ## foreign bytes against parsers and queue pairs: make fuzz TARGET=handle_packet SECONDS=3600, or TARGET=all
	scripts/fuzz run $(or $(TARGET),all) $(or $(SECONDS),60)

fuzz-short: ## every target for ten seconds
	scripts/fuzz run all 10

goodput: ## goodput over loss and round trip in the simulator: crates/sim/tests/goodput.md anew
	$(CARGO) run --quiet --profile sim --package adverb-sim -- --goodput 4 >$(TARGET_DIR)/goodput.md
	mv $(TARGET_DIR)/goodput.md crates/sim/tests/goodput.md

gigabyte-short: build ## 64 MiB under each fault, every byte checked
	$(GIGABYTE) --mib 64

gigabyte: build ## a gigabyte under each fault, every byte checked; a table into BENCHMARKS.md; minutes
	$(GIGABYTE) --write BENCHMARKS.md

foreign: build ## unmodified programs of Debian on the drop-in libraries, all of them
	ADVERB=$(ADVERB) $(FOREIGN) --no-fail-fast

foreign-short: build ## the same with fewer sizes and shorter runs
	ADVERB=$(ADVERB) ADVERB_FOREIGN_SHORT=1 $(FOREIGN) --no-fail-fast

foreign-wire: build ## all of them again with every packet on the network, which a host otherwise spares itself
	ADVERB=$(ADVERB) ADVERB_PATH=wire $(FOREIGN) --no-fail-fast

foreign-wire-short: build ## the same with fewer sizes and shorter runs
	ADVERB=$(ADVERB) ADVERB_PATH=wire ADVERB_FOREIGN_SHORT=1 $(FOREIGN) --no-fail-fast

interop: build ## against Linux soft-RoCE in a virtual machine, both ways; needs root or user namespaces
	ADVERB=$(ADVERB) $(INTEROP) --no-fail-fast

interop-short: build ## the same with fewer sizes and programs
	ADVERB=$(ADVERB) ADVERB_FOREIGN_SHORT=1 $(INTEROP) --no-fail-fast

interop-bench: build ## Linux soft-RoCE and Adverb side by side in one virtual machine; a table into BENCHMARKS.md
	ADVERB=$(ADVERB) $(CARGO) run --package adverb-interop --bin beside -- --write BENCHMARKS.md

lint: lint-tree ## format, clippy, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

lint-tree: ## unsafe only where it may be, lints declared in every crate
	scripts/lint-tree

tsan: ## eight threads for a minute under ThreadSanitizer; needs a nightly toolchain
	scripts/tsan

bench: build ## the figures of BENCHMARKS.md
	scripts/bench

bench-local: build ## between processes of one host, beside shared memory and UCX: the second half of BENCHMARKS.md
	scripts/bench local

scale: ## ten thousand queue pairs and 64 meshed processes, every byte verified (SHORT=1: 500 and 12)
	$(CARGO) run --release --package adverb-bench --bin scale -- $(if $(SHORT),--short)

scribble: ## two hundred processes, one after the other, that write anything to the memory they share with one that works
	ADVERB_SCRIBBLERS=$(or $(SCRIBBLERS),200) $(CARGO) test --release --package adverb-device --test scribble -- --nocapture

armed: ## ten million armed notifications, each accounted for; about two minutes
	$(CARGO) run --release --package adverb-bench --bin armed

mutants: ## break each rule on purpose: some test must notice (CQN, CHN, EXT and more); takes long
	scripts/mutants

ids: ## requirement ids and the tests that cite them
	scripts/requirement-ids

install: ## after `make`: bin/adverb and lib/adverb/* under DESTDIR PREFIX
	BUILD="$(BUILD)" scripts/install install "$(DESTDIR)$(PREFIX)"

uninstall: ## removes what install put there
	scripts/install uninstall "$(DESTDIR)$(PREFIX)"

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16
