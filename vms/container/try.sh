#!/bin/sh
# Try the image's steps where no registry can be reached: the same install.sh, in a root that mmdebstrap makes from
# a Debian mirror, in a user namespace; then `powercut smoke` in it as an ordinary user without /dev/kvm.
#
#   vms/container/try.sh [DIR]     DIR keeps root.tar (400 MB); default: a temporary one. The root takes 1 GB of memory
#
# Needs mmdebstrap and uidmap, and a user with entries in /etc/subuid, or root. $MIRROR: another mirror.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)

if [ ! -s "$work/root.tar" ]; then
	"$here/build.sh" --context "$work/context"
	# shellcheck disable=SC2016  # $1 is mmdebstrap's
	mmdebstrap --mode=unshare --variant=essential --include=apt \
		--customize-hook="copy-in $work/context /tmp" \
		--customize-hook='chroot "$1" sh /tmp/context/install.sh /tmp/context' \
		--customize-hook='rm -rf "$1/tmp/context"' \
		trixie "$work/root.tar" "${MIRROR:-http://deb.debian.org/debian}"
fi
echo "root: $(($(stat -c %s "$work/root.tar") >> 20)) MiB, $(($(gzip -1 -c "$work/root.tar" | wc -c) >> 20)) MiB packed"

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
		env HOME=/home/powercut POWERCUT_CACHE=/var/cache/powercut sh -euc "
			cd
			id
			test ! -e /dev/kvm
			powercut smoke
			du -sh /var/cache/powercut"
' try "$work/root.tar"
