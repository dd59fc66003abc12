#!/bin/sh
# Makes a Debian root one that runs Powercut as the user `powercut`. Run in the root, as root; the argument is a
# directory with the wheel and the list `packages`, which build.sh makes.
set -eu
context=$1
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2046  # a list of words
apt-get install -qy --no-install-recommends $(cat "$context/packages")
# Debian's Python packages are the dependencies, so nothing is fetched: the wheel has to be content with them.
pip install -q --no-index --no-deps --no-cache-dir --break-system-packages --root-user-action=ignore \
	"$context"/powercut-*.whl
pip check
apt-get purge -qy --autoremove python3-pip
apt-get clean
rm -rf /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/*
useradd --create-home powercut
install -d -o powercut -g powercut /var/cache/powercut
powercut --version
