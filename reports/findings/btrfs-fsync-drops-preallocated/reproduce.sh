#!/bin/sh
# btrfs: after fsync of a file that has grown into blocks which were allocated behind its end, and a power cut, the
# blocks that are still behind its end are freed, although they were on the disk before.
#
# The disk is copied once fsync has returned, which is what a power cut leaves of a disk that loses nothing at all, and
# the copy is mounted.
#
#   OPTIONS=rw          the default
#   OPTIONS=notreelog   control: fsync commits a transaction, and writes no log
#
# Needs root, loop devices and btrfs-progs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
OPTIONS=${OPTIONS:-rw}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	umount "$DIR/after" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in mkfs.btrfs fallocate losetup mount; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop btrfs || : # may be there already, or built in

allocated() {
	echo "$2: $(stat -c '%s bytes, %b sectors allocated' "$1/f")"
}

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 256M "$DIR/disk"
mkfs.btrfs -q -f "$DIR/disk" >/dev/null 2>&1 || fail "mkfs.btrfs fails"
mount -o "loop,$OPTIONS" "$DIR/disk" "$DIR/mnt" || fail "cannot mount btrfs"
: >"$DIR/mnt/f"
fallocate --keep-size --offset 0 --length 64K "$DIR/mnt/f"
umount "$DIR/mnt"
mount -o "loop,$OPTIONS" "$DIR/disk" "$DIR/mnt"
echo "Linux $(uname -r), $OPTIONS"
allocated "$DIR/mnt" "  allocated, and mounted again"
fallocate --offset 0 --length 32K "$DIR/mnt/f"
sync "$DIR/mnt/f"
allocated "$DIR/mnt" "  size set to 32 KiB, and synced"
before=$(stat -c %b "$DIR/mnt/f")
cp --sparse=always "$DIR/disk" "$DIR/crashed"
umount "$DIR/mnt"
mount -o loop "$DIR/crashed" "$DIR/after" || fail "the crashed file system cannot be mounted"
allocated "$DIR/after" "  after the power cut"
after=$(stat -c %b "$DIR/after/f")
if [ "$after" -lt "$before" ]; then
	echo "BROKEN: $((before - after)) of $before sectors are no longer allocated"
else
	echo "KEPT: f has its $after sectors"
fi
