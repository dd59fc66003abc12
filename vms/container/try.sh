#!/bin/sh
# Try the image's steps where no registry can be reached: the same install.sh, in a root that mmdebstrap makes from
# the Debian mirror of this machine, in a user namespace; then `powercut smoke` in it as an ordinary user without
# /dev/kvm.
#
#   vms/container/try.sh [DIR]     DIR keeps root.tar (400 MB); default: nothing is kept. The root takes 1 GB of memory
#
# Needs mmdebstrap and uidmap, and a user with entries in /etc/subuid, or root. $MIRROR: another mirror.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${1:-}" ]; then
	mkdir -p "$1"
	work=$(cd "$1" && pwd)
else
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
fi

if [ ! -s "$work/root.tar" ]; then
	# shellcheck disable=SC2016  # $(REPO_URI) is apt-get's
	mirror=${MIRROR:-$(
		# shellcheck disable=SC1091  # every Debian has it
		. /etc/os-release
		apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' \
			"Codename: ${VERSION_CODENAME:-}" | head -n 1
	)}
	[ -n "$mirror" ] || {
		echo "try.sh: apt knows no Debian mirror here: run apt-get update, or name one in MIRROR" >&2
		exit 1
	}
	"$here/build.sh" --context "$work/context"
	# shellcheck disable=SC2016  # $1 is mmdebstrap's
	mmdebstrap --mode=unshare --variant=essential --include=apt \
		--customize-hook="copy-in $work/context /tmp" \
		--customize-hook='chroot "$1" sh /tmp/context/install.sh /tmp/context' \
		--customize-hook='rm -rf "$1/tmp/context"' \
		trixie "$work/root.tar" "$mirror"
fi
echo "root: $(($(stat -c %s "$work/root.tar") >> 20)) MiB, $(($(gzip -1 -c "$work/root.tar" | wc -c) >> 20)) MiB packed"

# shellcheck disable=SC2016  # all variables below are those of the shell that is started
# What a container engine does: a user namespace, its own processes and mounts, few devices, an ordinary user.
mmdebstrap --unshare-helper unshare --mount --pid --fork sh -eu -c '
	root=/mnt # in memory, and gone with the namespace
	mount -t tmpfs tmpfs "$root"
	tar -C "$root" --exclude="./dev/*" -xf "$1"
	for device in null zero full random urandom; do
		: >"$root/dev/$device"
		mount --bind "/dev/$device" "$root/dev/$device"
	done
	mkdir "$root/dev/shm"
	mount -t tmpfs tmpfs "$root/dev/shm"
	mount -t tmpfs tmpfs "$root/tmp"
	mount -t proc proc "$root/proc"
	ln -s /proc/self/fd "$root/dev/fd"
	cp /etc/resolv.conf /etc/hosts "$root/etc/"
	chroot "$root" setpriv --reuid=powercut --regid=powercut --init-groups --no-new-privs --bounding-set=-all \
		env -u TMPDIR -u TMP -u TEMP HOME=/home/powercut POWERCUT_CACHE=/var/cache/powercut sh -euc "
			cd
			id
			test ! -e /dev/kvm
			powercut smoke
			du -sh /var/cache/powercut"
' try "$work/root.tar"
