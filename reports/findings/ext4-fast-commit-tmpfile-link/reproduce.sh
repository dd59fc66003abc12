#!/bin/sh
# ext4 with fast_commit: a file made with O_TMPFILE and linkat(2) is gone after fsync and a power cut, with its data.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted, and checked.
#
#   MAKE=tmpfile    open(O_TMPFILE), write, linkat, fsync of the file: the default
#   MAKE=create     control: open(O_CREAT), write, fsync of the file
#   FEATURE=^fast_commit    control: O_TMPFILE and linkat without fast commits
#
# Needs root, loop devices, and xfs_io for linkat(2) of a file without a name. Prints BROKEN or KEPT; exits with 2 if it
# could not tell.
set -eu
FEATURE=${FEATURE:-fast_commit} MAKE=${MAKE:-tmpfile}
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
mkdir "$DIR/mnt/A"
sync
case $MAKE in
tmpfile) xfs_io -T -c "pwrite -q -S 0x41 0 5000" -c "flink $DIR/mnt/A/foo" -c fsync "$DIR/mnt/A" ;;
create) xfs_io -f -c "pwrite -q -S 0x41 0 5000" -c fsync "$DIR/mnt/A/foo" ;;
*) fail "MAKE=$MAKE: tmpfile or create" ;;
esac
[ "$(wc -c <"$DIR/mnt/A/foo")" = 5000 ] || fail "xfs_io did not make A/foo"
cp "$DIR/mnt/A/foo" "$DIR/wanted"
cp --sparse=always "$DIR/disk" "$DIR/crashed"

echo "Linux $(uname -r), $FEATURE, A/foo made by $MAKE. After the power cut:"
mount -o loop "$DIR/crashed" "$DIR/after" || fail "the crashed file system cannot be mounted"
ls -lA "$DIR/after/A"
kept=
cmp -s "$DIR/wanted" "$DIR/after/A/foo" && kept=1
umount "$DIR/after"
e2fsck -f -n "$DIR/crashed" 2>&1 || echo "e2fsck -n exits with $?"
if [ -n "$kept" ]; then
	echo "KEPT: after the power cut, A/foo has all 5000 bytes"
	exit 0
fi
e2fsck -f -y "$DIR/crashed" >/dev/null 2>&1 || :
mount -o loop "$DIR/crashed" "$DIR/after" || fail "the repaired file system cannot be mounted"
echo "lost+found after e2fsck -y:"
ls -lsA "$DIR/after/lost+found"
for found in "$DIR"/after/lost+found/*; do
	! cmp -s "$DIR/wanted" "$found" || fail "the data is in lost+found, so only the name is lost"
done
echo "BROKEN: fsync returned, and after a power cut A/foo is gone; its data is not in lost+found either"
