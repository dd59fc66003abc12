#!/bin/sh
# Install what powercut needs: programs (apt), a virtual environment, the agent and the disk.
# Idempotent; takes seconds when nothing is missing. Only missing programs need root (or sudo).
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

# need PROGRAM PACKAGE: adds the package if the program is missing
missing=
need() {
	PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need qemu-system-x86_64 qemu-system-x86
need fio fio
need sqlite3 sqlite3
need redis-cli redis-tools
need depmod kmod
need xz xz-utils
need busybox busybox-static
need setpriv util-linux
need mdadm mdadm
need dmsetup dmsetup
need git git
[ -e /usr/lib/x86_64-linux-gnu/liblmdb.so.0 ] || missing="$missing liblmdb0"
# Debian's PostgreSQL starts a service: only where tests that lack something fail (.ci/run) is it installed unasked.
if [ "${POWERCUT_REQUIRE_VM:-}" = 1 ]; then
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
	need chromium chromium # tests of the pages
	need chromedriver chromium-driver
	need strace strace # tests of `powercut import`
	need bindfs bindfs # tests of layers
	need gocryptfs gocryptfs
	need veritysetup cryptsetup-bin # tests of the workload verity
	need fusermount fuse3
fi
need make make
need gcc gcc
need flex flex
need bison bison
need bc bc
need lz4 lz4
need mmdebstrap mmdebstrap
need newuidmap uidmap
need mkfs.erofs erofs-utils
need dot graphviz # diagrams of the documents
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3 python3-venv"

# The crates need Rust 1.89 (`rust-version` in Cargo.toml; uuid needs most). Debian 12's `rustc` is 1.63, its
# `rustc-web` is kept current.
rust_minor=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\).*/\1/p')
[ "${rust_minor:-0}" -ge 89 ] || missing="$missing cargo-web rustc-web"

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else
		command -v sudo >/dev/null 2>&1 || {
			say "as root, run: apt-get update && apt-get install$missing"
			exit 1
		}
		sudo "$@"
	fi
}

kernels_known() { apt-cache pkgnames linux-image-6.12 2>/dev/null | grep -q . ; }

# The packages of missing programs that file systems' profiles name, except those this distribution lacks. What Linux
# does not have is its user's to install: its programs go into guests alone, and zfsutils-linux would start services.
filesystems() {
	awk -F'"' '
		FNR == 1 { outside = 0 }
		/^not_in_linux = / { outside = 1 }
		outside { next }
		/^program = / { program = $2 }
		/^package = / { print program ":" $2 }' vms/filesystems/*/*.toml | sort -u |
		while IFS=: read -r program package; do
			PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null 2>&1 ||
				[ -z "$(apt-cache madison "$package" 2>/dev/null)" ] || printf ' %s' "$package"
		done
}

if [ -n "$missing$(filesystems)" ] || ! kernels_known; then
	say "apt-get update (as root)"
	as_root apt-get update -q >/dev/null
fi
missing="$missing$(filesystems)"
if [ -n "$missing" ]; then
	say "apt-get install$missing (as root): a minute or more, once"
	# shellcheck disable=SC2086  # a list of words
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing >/dev/null
fi

stamp=$(cksum <pyproject.toml)
if [ "$(cat .venv/powercut-stamp 2>/dev/null)" != "$stamp" ]; then
	say "creating a virtual environment in .venv, and installing into it: a minute, once"
	python3 -m venv .venv
	.venv/bin/pip install -q --disable-pip-version-check -e '.[dev]'
	printf '%s\n' "$stamp" >.venv/powercut-stamp
fi

# A run starts a process for each worker, each time: where Python writes no compiled modules (an environment may say
# so), half of each start went into compiling them.
.venv/bin/python -m compileall -q harness

# The agent is PID 1 of a guest without libraries, so it is linked statically. Naming the gnu target keeps
# the flag away from build scripts and procedural macros.
quiet=-q
[ -e target/release/powercut-disk ] || {
	say "building the Rust parts: minutes, once"
	quiet= # cargo names each crate: the first build takes minutes
}
# shellcheck disable=SC2086  # a word, or none
cargo build $quiet --locked --release -p powercut-disk -p powercut-readtrace -p powercut-umlshim
# shellcheck disable=SC2086  # a word, or none
RUSTFLAGS='-C target-feature=+crt-static' \
	cargo build $quiet --locked --release -p powercut-agent --target x86_64-unknown-linux-gnu
