# `make run` and `make test` need only this checkout and, for setup, root or sudo.
.PHONY: help setup run legal test nightly lint deny unit quick fuzz chaos mutants smoke bench verify reference planted caches allowed patches rootfs findings wheel docs man image clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*##\(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

setup:  ## install what is missing (idempotent)
	@vms/setup.sh
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "setup: everything is there; next: make run (or .venv/bin/powercut --help)")

EXT4 = -w all -c ext4/journal,ext4/ordered,ext4/writeback,ext4/nobarrier

run: setup  ## is ext4 of Debian's Linux 6.12 crash-consistent, and what does barrier=0 lose?
	@.venv/bin/powercut run --name ext4 $(EXT4) --expect vms/filesystems/natural-faults.expected

legal: setup  ## the same in every state that the disk's cache may be left in; first builds a UML kernel (minutes, once)
	@.venv/bin/powercut kernel build
	@.venv/bin/powercut run --name legal $(EXT4) \
		--states exhaustive --budget 150,4s --expect vms/filesystems/reordering.expected

# More workers than two cores, as guests sleep; a file's tests share what they make; files in the order of collection.
SPREAD = -n 4 --dist loadfile --no-loadscope-reorder
# Each worker collects all tests: 8 s of processor time if it may keep what pytest makes of their modules, else 23 s.
PYTEST = PYTHONDONTWRITEBYTECODE= .venv/bin/pytest

test: setup lint  ## every test, with real guests
	cargo test -q --locked --release
	$(PYTEST) $(SPREAD) --durations 20

nightly: setup  ## sessions of the documents that take minutes, and a part of `make allowed`
	.venv/bin/pytest -m nightly -n 0
	.venv/bin/python -m harness.tests.allowed --minutes $(MINUTES)

unit: setup  ## the tests that need no guest
	$(PYTEST) -m 'not vm' -n 2

BASE ?= HEAD
quick: setup  ## the tests that a change reaches, and one guest where states are made or judged; make quick BASE=HEAD~1
	.venv/bin/python -m harness.tests.quick --base $(BASE)

fuzz: setup  ## property tests of every parser, with a hundred times the examples
	HYPOTHESIS_PROFILE=fuzz .venv/bin/pytest -m fuzz -p no:cacheprovider

MINUTES ?= 20
chaos: setup  ## attack the harness: kills, damage, hostile guests and directories, full disks; make chaos MINUTES=20 SEED=1
	.venv/bin/python -m harness.tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --json reports/chaos.json

ONLY ?=
mutants: setup  ## plant defects in the harness's own code: a test has to notice each; make mutants ONLY=oracles
	.venv/bin/python -m harness.tests.mutants $(if $(ONLY),--only $(ONLY))

lint: setup  ## types and style
	cargo fmt --check
	cargo clippy -q --locked --release --all-targets -- -D warnings
	.venv/bin/ruff check harness docs
	.venv/bin/ruff format --check harness docs
	.venv/bin/mypy

deny: setup  ## licences, sources and known vulnerabilities of the crates
	@vms/deny.sh

smoke: setup  ## one mode, one workload
	@.venv/bin/powercut smoke

bench: setup  ## states per second, and the cost of a switch as the log grows
	@.venv/bin/powercut bench --json reports/bench.json

verify: setup  ## memo on and off, emulation and UML: verdicts agree by state; real and virtual time: by finding
	@set -e; ask='.venv/bin/powercut run --out reports/verify'; \
	cases='-w all -c ext4/journal,ext4/ordered,ext4/writeback,ext4/nobarrier,xfs/default'; \
	run() { $$ask "$$@" >/dev/null || [ $$? = 1 ]; readlink -f reports/verify/latest; }; \
	first=$$(run $$cases --name qemu --machine qemu --no-memo); \
	for how in '--machine qemu --memo' '--machine uml --no-memo' '--machine uml --memo'; do \
		echo "against $$how:"; \
		second=$$(run $$cases --name other $$how --recordings "$$first"); \
		.venv/bin/powercut compare "$$first" "$$second"; \
	done; \
	echo "virtual time against real time, recordings of their own:"; \
	real=$$(run $$cases --name real --machine uml --clock real); \
	virtual=$$(run $$cases --name virtual --machine uml --clock virtual); \
	for pair in "$$real $$virtual" "$$virtual $$real"; do \
		.venv/bin/powercut compare $$pair; \
	done

reference: setup  ## legal states of small crash times, and cuts in recoveries, one by one, against what runs found
	@set -e; .venv/bin/powercut run --out reports/verify --name legal --states exhaustive -w quick \
		-c ext4/ordered,ext4/journal,xfs/default,btrfs/default,ext4/external-journal,xfs/external-log || \
		[ $$? = 1 ]; \
	.venv/bin/python -m harness.tests.reference reports/verify/latest
	@# NILFS2 has more than 10,000 legal states in most cases; those of small crash times come first
	@set -e; .venv/bin/powercut run --out reports/verify --name legal --states exhaustive --budget 1500 -w quick \
		-c nilfs2/default || [ $$? = 1 ]; \
	.venv/bin/python -m harness.tests.reference reports/verify/latest
	@set -e; .venv/bin/powercut run --out reports/verify --name again --states exhaustive -w quick --again 1 \
		-c ext4/ordered,btrfs/default,f2fs/posix || [ $$? = 1 ]; \
	.venv/bin/python -m harness.tests.reference --again reports/verify/latest

planted: setup  ## planted faults that no prefix of the log shows: missed by prefixes, found by all legal states
	@for states in prefix 'exhaustive --budget 300'; do echo "$$states:"; \
		.venv/bin/powercut faults --out reports/verify --states $$states \
			in-place-before-commit nilfs2-no-checksum | grep -E '^[a-z0-9-]+ +(found|missed)' || :; \
	done

CACHES = extjournal-no-fsdev-flush extjournal-tail-wrong-flush thin-commit-no-flush xfs-extlog-fsync-wrong-flush xfs-extlog-no-data-flush

caches: setup  ## planted faults of a second device: found with a cache for each device, missed with one for both
	@set -e; .venv/bin/powercut faults --out reports/verify $(CACHES); \
	last=$$(ls -d reports/verify/runs/*-faults | tail -n 1); \
	for fault in $(CACHES); do \
		echo "$$fault, one cache:"; .venv/bin/python -m harness.tests.reference --one-cache $$last/trials/$$fault/latest; \
	done

allowed: setup  ## does any real mode show what any/posix forbids? every application and mode, hours; make allowed MINUTES=60
	@.venv/bin/powercut kernel build
	.venv/bin/python -m harness.tests.allowed --minutes $(MINUTES) --page reports/allowed/within-posix.md

TREE ?= linux
patches: setup  ## does `powercut patch` find bugs, and pass harmless changes? make patches TREE=DIR, a git tree
	@.venv/bin/python -m harness.tests.patches.ground_truth $(TREE)

rootfs: setup  ## build the root image of the guest with tools, for powercut trace and measure (minutes, once)
	@.venv/bin/powercut rootfs

findings: setup  ## reproduce the bugs in reports/findings by their scripts, each with its control
	@.venv/bin/powercut findings

docs: setup  ## write the reference from the code, and build the site in dist/site (warnings are errors)
	@.venv/bin/python docs/generate.py
	@.venv/bin/sphinx-build -q -W --keep-going -c docs -d dist/doctrees . dist/site
	@.venv/bin/powercut docs --path

wheel: docs  ## build dist/powercut-*.whl, which runs without this checkout and without Rust
	@.venv/bin/pip wheel -q --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

man: setup  ## write the manual pages to dist/man
	@.venv/bin/powercut man dist/man

image: wheel  ## build the container image with podman, or what BUILDER names; needs neither root nor KVM
	@vms/container/build.sh

clean:  ## delete what was built; keep runs and the cache
	rm -rf target .venv
