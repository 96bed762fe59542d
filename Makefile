# Builds, tests and installs. `make help` lists the targets and their variables.

# Paths.
PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# The directory from which `install` takes the built files.
BUILD ?= $(TARGET_DIR)/release
ADVERB := $(abspath $(BUILD))/adverb
# The oldest Rust that builds the workspace.
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Variables of the command line, mostly for the amount of work. The help text of a target names the
# target's variables.
# SHORT=1 WIRE=1 SUITES= CRATES= SEED= SEEDS= FROM= JOBS= ROUNDS= SECONDS= MIB= ALLOCATORS= SCRIBBLERS= TARGET=
SIZE = $(if $(SHORT),$(2),$(1))

# Crates with tests that start other programs. For each of these crates there is a separate make
# target.
APART := $(foreach crate,foreign interop programs corpus,--exclude adverb-$(crate))
# Excludes the crates of tests/, so that cargo builds only the shipped crates. Otherwise cargo would
# also optimise the programs of the tests and benchmarks at link time, which takes half a minute.
SHIPPED := $(foreach crate,$(notdir $(wildcard tests/*)),--exclude adverb-$(crate))
# NDKPI is a separate workspace, and uses the same target directory.
NDKPI = --manifest-path ndkpi/Cargo.toml --target-dir $(TARGET_DIR)
# The environment of the tests in APART: the command, fewer cases with SHORT=1, every packet on the
# network with WIRE=1.
TOLD = ADVERB=$(ADVERB) $(if $(SHORT),ADVERB_FOREIGN_SHORT=1) $(if $(WIRE),ADVERB_PATH=wire)
TORTURE = ADVERB=$(ADVERB) $(CARGO) run --release --package adverb-torture --bin
SIM = $(CARGO) run --profile sim --package adverb-sim --
PROGRAMS_DEPS = openmpi-bin libopenmpi-dev mpich libmpich-dev python3-mpi4py libfabric-bin fio tgt libiscsi-dev qperf qemu-system-x86 python3-pip python3-venv \
	cmake pkg-config libnl-3-dev libnl-route-3-dev libclang1-14 libclang-common-14-dev
PROGRAMS_BUILT = python3-dev libudev-dev ninja-build ceph-mon ceph-osd ceph-common dpkg-dev libboost-dev

.PHONY: all
all: build libndkpi

### First

.PHONY: build libndkpi portable cross demo test check-all unit ndkpi lint foreign some sim loom fuzz interop programs bench book install packages packages-test crates uninstall help
build: ## the command and the drop-in libraries, optimised
	$(CARGO) build --release --workspace $(SHIPPED)
	scripts/check-objects $(TARGET_DIR)/release/libadverb_preload.so $(TARGET_DIR)/release/libadverb_audit.so

libndkpi: ## the library of NDKPI for C, optimised; `make` builds the command and all libraries
	$(CARGO) build --release $(NDKPI)
	ln -sf libndkpi.so $(TARGET_DIR)/release/libndkpi.so.1

# `$(call portable,MACHINE,CC)` builds the same files for every Linux with glibc. The linker sees
# stand-ins for glibc 2.17 (scripts/old-glibc).
MACHINE := $(shell uname -m)
PORTABLE = $(TARGET_DIR)/$(1)-unknown-linux-gnu/release
# The linker runs in the directory of each workspace. The crates of the other workspace have
# absolute paths, which must not appear in the result.
PORTABLY = env -u RUSTFLAGS CC_$(1)_unknown_linux_gnu=$(2) $(CARGO) build --release \
	--target $(1)-unknown-linux-gnu --config 'target.$(1)-unknown-linux-gnu.linker="$(2)"' --config \
	'target.$(1)-unknown-linux-gnu.rustflags=["-Clink-arg=-L$(abspath $(call PORTABLE,$(1)))/glibc-2.17","-Clink-arg=-Wl,--wrap=__libc_start_main","--remap-path-prefix=$(CURDIR)/="]'
define portable
	CC=$(2) scripts/old-glibc $(call PORTABLE,$(1))/glibc-2.17
	$(call PORTABLY,$(1),$(2)) --workspace $(SHIPPED)
	$(call PORTABLY,$(1),$(2)) $(NDKPI)
	ln -sf libndkpi.so $(call PORTABLE,$(1))/libndkpi.so.1
	scripts/check-objects $(call PORTABLE,$(1))/libadverb_preload.so $(call PORTABLE,$(1))/libadverb_audit.so
endef
portable: ## the same files for glibc 2.17 and newer, as in the packages
	$(call portable,$(MACHINE),cc)

CROSS = aarch64-unknown-linux-gnu
HAS_CROSS = $(wildcard $(shell rustc --print target-libdir --target $(CROSS) 2>/dev/null))
cross: ## portable, for aarch64 on x86-64, and the demo under qemu-user; needs rustup target add aarch64-unknown-linux-gnu
	scripts/test-deps gcc-aarch64-linux-gnu libc6-dev-arm64-cross lld qemu-user
	$(call portable,aarch64,aarch64-linux-gnu-gcc)
	QEMU_LD_PREFIX=/usr/aarch64-linux-gnu qemu-aarch64 $(call PORTABLE,aarch64)/adverb demo --no-measure --runner qemu-aarch64

demo: build ## two processes, every operation, a table of figures
	$(BUILD)/adverb demo

test: ## packages, unit tests, the demo, some foreign programs on both paths; a table of the parts at the end
	.ci/run deps build unit ndkpi demo some

# Without this line, `make tests` would do nothing, because the directory tests exists.
.PHONY: tests
tests: test

check-all: ## every suite of CI: the tests in full, rules of the tree, models, fuzzing, other hosts
	.ci/run

# The unit tests run in two halves of about the same time, because the tests mostly wait. The halves
# run at the same time if unit-1 can have its own network namespace. In a shared namespace, packets
# for a process of one half may arrive at a process of the other half. Both halves name the same
# packages, and so share the builds.
UNIT = $(CARGO) test --no-fail-fast --workspace $(APART)
OWN_NET = unshare --net sh -c 'ip link set lo up && exec "$$@"' sh
HAS_NET = $(shell $(OWN_NET) true 2>/dev/null && echo yes)
unit: ids ## tests of Adverb's own crates
	$(UNIT) --no-run
	$(MAKE) --jobs $(if $(HAS_NET),2,1) --keep-going unit-1 unit-2

.PHONY: unit-1 unit-2
# Both halves write their output at the same time, so each half writes whole lines.
unit-1 unit-2: SHELL = /bin/bash
unit-1 unit-2: .SHELLFLAGS = -o pipefail -c
BY_LINES = 2>&1 | grep -a --line-buffered ''
unit-1:
	$(if $(HAS_NET),$(OWN_NET)) $(UNIT) --test '[abd-fh-k]*' $(BY_LINES)

unit-2:
	$(UNIT) --lib --bins --examples --test '[!abd-fh-k]*' $(BY_LINES)
	$(UNIT) --doc $(BY_LINES)

# Runs in its own network namespace if this machine allows one, because other processes in the same
# namespace could receive packets of these tests.
ndkpi: ## tests of NDKPI, a workspace of its own
	$(CARGO) test --no-fail-fast --workspace $(NDKPI) --no-run
	$(if $(HAS_NET),$(OWN_NET)) $(CARGO) test --no-fail-fast --workspace $(NDKPI)

lint: lint-tree ## format, clippy, documentation, rules of the tree
	$(CARGO) fmt --all --check
	$(CARGO) fmt --all --check --manifest-path ndkpi/Cargo.toml
	$(CARGO) metadata --locked --format-version 1 --manifest-path ndkpi/Cargo.toml >/dev/null
	$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --all-targets $(NDKPI) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --features adverb/tokio --no-deps --quiet
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet $(NDKPI)

foreign: build ## unmodified programs on the drop-in libraries (SUITES=; SHORT=1; WIRE=1: all on the network)
	$(TOLD) $(CARGO) test --package adverb-foreign --no-fail-fast -- $(SUITES)

# The target `some` leaves out most tables of all message sizes, runs of a fixed time, and one depth
# of the queue. Perftest measures the clock for each line of a table, so a table takes ten seconds.
SOME = pingpong perftest pyverbs notify rdmacm ucx --skip _lat/-a/ --skip /a/n_ --skip _bw/-a/b --skip /-D_1 --skip /-t_512
some: build ## some of these programs, on both paths: three to four minutes
	$(MAKE) foreign SHORT=1 SUITES="$(SOME)"
	$(MAKE) foreign-wire SHORT=1 SUITES="$(SOME)"

sim: ## the simulator, checked by an oracle, and its table of goodput (SEEDS=1000 CONNECTIONS=SEEDS NODES=SEEDS FROM=0 JOBS=1)
	$(SIM) --from $(or $(FROM),0) --jobs $(or $(JOBS),1) --seeds $(or $(SEEDS),1000) \
		--connections $(or $(CONNECTIONS),$(SEEDS),1000) --nodes $(or $(NODES),$(SEEDS),1000)
	$(SIM) --goodput 4 >$(TARGET_DIR)/goodput.md
	diff -u tests/sim/tests/goodput.md $(TARGET_DIR)/goodput.md || { echo "the protocol's goodput has changed: see the difference, then run make goodput"; exit 1; }

loom: ## races of completion queues (CQN-12) and of shared memory, by model checking; a minute
	RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_TARGET_DIR=$(TARGET_DIR)/loom $(CARGO) test --package adverb-sync --package adverb-device --package adverb-shm --lib --release loom_

fuzz: ## untrusted bytes against parsers and queue pairs (TARGET=all SECONDS=60; SHORT=1: 10)
	scripts/fuzz run $(or $(TARGET),all) $(or $(SECONDS),$(call SIZE,60,10))

interop: build ## against Linux soft-RoCE in a virtual machine; needs root or user namespaces (SHORT=1)
	$(TOLD) $(CARGO) test --package adverb-interop --no-fail-fast

programs: build ## test suites of other projects (docs/programs.md); an hour (SUITES=; SHORT=1: builds none)
	scripts/test-deps $(PROGRAMS_DEPS) $(call SIZE,$(PROGRAMS_BUILT),)
	$(TOLD) $(CARGO) test --package adverb-programs --no-fail-fast -- $(SUITES)

bench: build ## the figures of BENCHMARKS.md
	scripts/bench

book: build libndkpi ## checks the book's links, programs and outputs; `scripts/book build` makes the pages (mdbook)
	ADVERB=$(ADVERB) scripts/book run

install: ## after `make`: bin/adverb and lib/adverb/* under DESTDIR PREFIX
	BUILD="$(BUILD)" scripts/install install "$(DESTDIR)$(PREFIX)"

packages: portable ## tarball, Debian package, wheel and OCI image into target/dist
	BUILD="$(call PORTABLE,$(MACHINE))" scripts/package

# Includes the packages for aarch64 if Rust for aarch64 is installed.
packages-test: portable $(if $(and $(HAS_CROSS),$(filter-out aarch64,$(MACHINE))),cross) ## the demo from each package, in a bare Debian tree; needs root
	scripts/test-deps mmdebstrap skopeo binutils python3-venv
	BUILD="$(call PORTABLE,$(MACHINE))" CROSS="$(if $(HAS_CROSS),$(call PORTABLE,aarch64))" scripts/test-packages

crates: ## packs all public crates for a registry, and builds each packed crate
	scripts/crates

uninstall: ## removes the installed files
	scripts/install uninstall "$(DESTDIR)$(PREFIX)"

help: ## this list
	@sed -n -e 's/^### \(.*\)/\n\1/p' -e 's/^\([a-z-]*\):.* ## /  \1\t/p' Makefile | expand -t 18
	@sed -n -e 's/^# \(SHORT=1 .*\)/\nVariables: \1/p' Makefile
	@echo "           PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) BUILD=$(BUILD) CARGO=$(CARGO)"

### Rules of the tree and of the dependencies

.PHONY: deps lint-tree wrap ids msrv msrv-version deny mutants mutants-pure tsan
deps: ## installs the Debian packages that the tests need
	scripts/test-deps

lint-tree: ## rules of the tree: unsafe code, sizes, imports, tests and mutants of requirements, names, widths, words
	scripts/lint-tree
	scripts/test-lint-tree
	scripts/requirement-ids --check
	scripts/import-circles
	scripts/wrap --check
	scripts/prose --check
	scripts/book check

wrap: ## prose and comments in lines of 100 columns
	scripts/wrap

ids: ## requirement ids, each with its tests
	scripts/requirement-ids

msrv: ## builds with the oldest declared Rust; needs rustup and this toolchain
	CARGO_TARGET_DIR=$(TARGET_DIR)/msrv $(CARGO) +$(MSRV).0 check --workspace --all-targets --locked
	$(CARGO) +$(MSRV).0 check --workspace --all-targets --locked --manifest-path ndkpi/Cargo.toml --target-dir $(TARGET_DIR)/msrv

msrv-version:
	@echo $(MSRV).0

deny: ## licences, sources, duplicates, advisories; needs cargo-deny (CHECKS=: some of them)
	$(CARGO) deny check $(CHECKS)
	$(CARGO) deny --manifest-path ndkpi/Cargo.toml check $(CHECKS)
	$(CARGO) deny --manifest-path fuzz/Cargo.toml check $(CHECKS)

mutants: ## breaks rules on purpose: some test must notice (scripts/mutants.d, ndkpi/mutants.d, then mutants-pure); a night
	scripts/mutants
	$(MAKE) mutants-pure

# These crates contain only rules, without clock, socket, thread or process. So the tests of such a
# crate alone can find the crate's mutants.
PURE = steering choice wire check cm engine
mutants-pure: ## cargo-mutants on the crates of rules (CRATES=cm: only cm); installs a missing cargo-mutants
	$(CARGO) mutants --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-mutants@27.1.0
	$(CARGO) mutants --no-shuffle --output $(TARGET_DIR) $(addprefix --package adverb-,$(or $(CRATES),$(PURE)))

tsan: ## eight threads for a minute under ThreadSanitizer; needs a nightly toolchain
	scripts/tsan

### Long runs

.PHONY: sim-long kill scale scribble armed torture soak gigabyte corpus hunt check foreign-wire interop-bench bench-local
sim-long: ## the simulator for hours: make sim-long SEEDS=10000000 FROM=1000000
	$(MAKE) sim SEEDS=$(or $(SEEDS),1000000)

kill: ## processes killed in mid-traffic; their peer survives (ROUNDS=1000 SEED=1; SHORT=1: 20)
	$(TORTURE) kill -- --seed $(or $(SEED),1) --rounds $(or $(ROUNDS),$(call SIZE,1000,20))

scale: ## ten thousand queue pairs, 64 meshed processes, bytes verified (SHORT=1: 500 and 12)
	$(TORTURE) scale -- $(if $(SHORT),--short)

scribble: ## processes write arbitrary bytes to memory shared with a working process (SCRIBBLERS=200)
	ADVERB_SCRIBBLERS=$(or $(SCRIBBLERS),200) $(CARGO) test --release --package adverb-device --test scribble -- --nocapture

armed: ## ten million armed notifications, each accounted for; about two minutes
	$(TORTURE) armed

torture: build ## random steps on memory against a model (SECONDS=3600 ALLOCATORS= SEED=1 JOBS=2; SHORT=1: 30)
	$(TORTURE) torture -- --jobs $(or $(JOBS),2) --seed $(or $(SEED),1) --seconds $(or $(SECONDS),$(call SIZE,3600,30)) $(if $(ALLOCATORS),--allocators $(ALLOCATORS))

soak: build ## processes come and go, some are killed; nothing stays behind (SECONDS=3600; SHORT=1: 20)
	$(TORTURE) soak -- --seconds $(or $(SECONDS),$(call SIZE,3600,20))

gigabyte: ## a gigabyte under each fault, into BENCHMARKS.md (MIB=1024; SHORT=1: 64, no table)
	$(TORTURE) gigabyte -- --mib $(or $(MIB),$(call SIZE,1024,64)) $(if $(SHORT),,--write BENCHMARKS.md)

corpus: build ## hunts of small wrong programs, each with cause and line, and of their right twins (SHORT=1)
	$(TOLD) $(CARGO) test --package adverb-corpus -- twins found

check: build ## adverb run --check over the wrong and the right programs of the corpus (SHORT=1)
	$(TOLD) $(CARGO) test --package adverb-corpus -- check

hunt: build ## the right programs of the corpus under the schedules of many seeds; an hour (SHORT=1)
	$(TOLD) $(CARGO) test --package adverb-corpus -- hunt

foreign-wire: ## make foreign WIRE=1
	$(MAKE) foreign WIRE=1

interop-bench: build ## soft-RoCE and Adverb side by side in a virtual machine; tables into BENCHMARKS.md
	ADVERB=$(ADVERB) $(CARGO) run --package adverb-interop --bin beside -- --write BENCHMARKS.md

bench-local: build ## processes of one host beside shared memory and UCX: BENCHMARKS.md's second half
	scripts/bench local

# NAME-short is `make NAME SHORT=1`, and kill-long is `make kill`.
SHORTS := kill torture soak fuzz gigabyte corpus hunt check foreign foreign-wire interop programs scale
.PHONY: $(SHORTS:=-short) kill-long
$(SHORTS:=-short): %-short:
	$(MAKE) $* SHORT=1

kill-long: kill

### Files made from the source

.PHONY: causes goodput
causes: ## docs/causes.md from the list in the source
	$(CARGO) run --quiet --package adverb-cli -- explain --page >$(TARGET_DIR)/causes.md
	mv $(TARGET_DIR)/causes.md docs/causes.md

goodput: ## goodput over loss and round trip in the simulator: tests/sim/tests/goodput.md
	$(CARGO) run --quiet --profile sim --package adverb-sim -- --goodput 4 >$(TARGET_DIR)/goodput.md
	mv $(TARGET_DIR)/goodput.md tests/sim/tests/goodput.md
