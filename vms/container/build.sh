#!/bin/sh
# Build the container image: vms/container/build.sh [TAG]. Needs neither root nor a daemon: podman, or the
# program that $BUILDER names (buildah, docker). $BASE: another Debian image to begin with. With --context DIR,
# only make the directory that is built from.
set -eu
cd "$(dirname "$0")/../.."

# The list of packages, by the table [container] of vms/packages.toml.
packages() {
	awk -F' *=' '/^\[/{inside = $0 == "[container]"} inside && /^[a-z0-9-]+ *=/{print $1}' vms/packages.toml
}

# context DIR: what the image is built from. Takes the wheel that `make wheel` left in dist/.
context() {
	wheel=$(find dist -name 'powercut-*.whl' 2>/dev/null | sort | tail -n 1)
	[ -n "$wheel" ] || {
		echo "build.sh: dist/ holds no wheel; first: make wheel" >&2
		exit 1
	}
	mkdir -p "$1"
	cp vms/container/Containerfile vms/container/install.sh "$wheel" "$1"
	packages >"$1/packages"
}

if [ "${1:-}" = --context ]; then
	context "$2"
	exit
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
context "$folder"
"${BUILDER:-podman}" build --tag "${1:-powercut}" ${BASE:+--build-arg "BASE=$BASE"} \
	--file "$folder/Containerfile" "$folder"
