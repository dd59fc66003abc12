#!/bin/sh
# ext4 with fast_commit: after mkdir, fsync of another file and a power cut, recovery leaves a file system that e2fsck
# finds corrupt: the directory's blocks and link count, and the link count of its parent.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted, unmounted, and checked.
#
#   MAKE=mkdir      the default
#   MAKE=create     control: a file in place of the directory
#   FEATURE=^fast_commit    control: the same without fast commits
#
# Needs root, loop devices and xfs_io. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FEATURE=${FEATURE:-fast_commit} MAKE=${MAKE:-mkdir}
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

for tool in mkfs.ext4 e2fsck losetup mount xfs_io; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 64M "$DIR/disk"
mkfs.ext4 -q -F -b 4096 -J size=8 -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$DIR/disk"
# commit=: no commit by the clock in between; by default there is one every 5 s.
mount -o loop,commit=3600 "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4 with $FEATURE"
: >"$DIR/mnt/foo"
sync
case $MAKE in
mkdir) mkdir "$DIR/mnt/new" ;;
create) : >"$DIR/mnt/new" ;;
*) fail "MAKE=$MAKE: mkdir or create" ;;
esac
xfs_io -c "pwrite -q 0 4096" -c fsync "$DIR/mnt/foo"
cp --sparse=always "$DIR/disk" "$DIR/crashed"

echo "Linux $(uname -r), $FEATURE, $MAKE. After the power cut and recovery:"
mount -o loop "$DIR/crashed" "$DIR/after" || fail "the crashed file system cannot be mounted"
ls -lsA "$DIR/after"
[ "$(wc -c <"$DIR/after/foo")" = 4096 ] || fail "foo is too short, which is another fault"
umount "$DIR/after"
checked=0
e2fsck -f -n "$DIR/crashed" >"$DIR/said" 2>&1 || checked=$?
cat "$DIR/said"
case $checked in
0) echo "KEPT: e2fsck finds nothing wrong after recovery" ;;
4) echo "BROKEN: e2fsck finds $(grep -c 'Fix? no' "$DIR/said") errors after recovery, the first: $(grep -m 1 'Fix? no' "$DIR/said")" ;;
*) fail "e2fsck exits with $checked" ;;
esac
