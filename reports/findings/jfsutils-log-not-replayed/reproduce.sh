#!/bin/sh
# JFS: fsck.jfs of Debian's jfsutils cannot replay the log, formats it anew, and so drops what fsync had made durable.
#
# The disk is copied once fsync has returned, which is what a power cut leaves of a disk that loses nothing at all. The
# copy is recovered as at boot: fsck.jfs -a, then mount(2), which refuses a file system whose log was not replayed.
#
#   CUT=power       the default
#   CUT=no          control: the file system is unmounted before the disk is copied
#
# Needs root, loop devices, JFS in the kernel and jfsutils. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CUT=${CUT:-power}
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

for tool in mkfs.jfs fsck.jfs losetup mount; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop jfs || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 64M "$DIR/disk"
mkfs.jfs -q "$DIR/disk" >/dev/null
mount -t jfs -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount JFS"
echo data >"$DIR/mnt/f"
sync "$DIR/mnt/f"
case $CUT in
power) ;;
no) umount "$DIR/mnt" ;;
*) fail "CUT=$CUT: power or no" ;;
esac
cp --sparse=always "$DIR/disk" "$DIR/crashed"

echo "Linux $(uname -r); f was synced. What fsck.jfs -a -v says of the log:"
fsck.jfs -a -v "$DIR/crashed" >"$DIR/said" 2>&1 || : # 1: corrected
grep -iE 'version|replay|logredo|logformat' "$DIR/said" || :
mount -t jfs -o loop "$DIR/crashed" "$DIR/after" || fail "cannot mount what fsck.jfs left"
if [ "$(cat "$DIR/after/f" 2>/dev/null)" = data ]; then
	echo "KEPT: f is there"
else
	echo "BROKEN: fsync had returned, and after the power cut and fsck.jfs there is no f"
fi
