#!/bin/sh
# Check the crates that the Rust parts link: licences, sources and duplicates against deny.toml, known
# vulnerabilities against RustSec's database. Builds cargo-deny into the cache if it is not installed:
# 5 minutes of processor time, once a machine.
#
# The database comes from a git host. If that cannot be reached, this says that vulnerabilities were NOT
# CHECKED and, unless POWERCUT_REQUIRE_ADVISORIES=1, continues.
set -eu
cd "$(dirname "$0")/.."
version=0.20.2

say() { printf 'deny: %s\n' "$*" >&2; }

tools="${POWERCUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/powercut}/tools"
PATH="$tools/bin:$PATH"
if ! command -v cargo-deny >/dev/null 2>&1; then
	say "building cargo-deny $version"
	cargo install -q --locked --root "$tools" --target-dir target/cargo-deny "cargo-deny@$version"
	rm -rf target/cargo-deny
fi

cargo fetch -q --locked --target x86_64-unknown-linux-gnu
cargo deny --locked --offline check licenses bans sources

if cargo deny --locked fetch db >/dev/null 2>&1; then
	cargo deny --locked check --disable-fetch advisories
elif [ "${POWERCUT_REQUIRE_ADVISORIES:-0}" = 1 ]; then
	say "vulnerabilities NOT CHECKED: RustSec's database cannot be fetched (POWERCUT_REQUIRE_ADVISORIES=1)"
	exit 1
else
	say "vulnerabilities NOT CHECKED: RustSec's database cannot be fetched"
fi
