#!/bin/sh
# ext4 with fast_commit: after rmdir, fsync of another file and a power cut, recovery leaves the link count of the
# directory above one too high, and e2fsck finds the file system corrupt.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted, unmounted, and checked.
#
#   REMOVE=rmdir    the default
#   REMOVE=unlink   control: a file in place of the directory
#   THERE=yes       the other file is there before, so that it does not get the inode of the directory: that is left,
#                   without a name
#   FEATURE=^fast_commit    control: the same without fast commits
#
# Needs root, loop devices and xfs_io. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FEATURE=${FEATURE:-fast_commit} REMOVE=${REMOVE:-rmdir} THERE=${THERE:-no}
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
case $REMOVE in
rmdir) mkdir "$DIR/mnt/A" ;;
unlink) : >"$DIR/mnt/A" ;;
*) fail "REMOVE=$REMOVE: rmdir or unlink" ;;
esac
[ "$THERE" = no ] || : >"$DIR/mnt/foo"
sync
case $REMOVE in
rmdir) rmdir "$DIR/mnt/A" ;;
unlink) rm "$DIR/mnt/A" ;;
esac
echo data >>"$DIR/mnt/foo"
xfs_io -f -c fsync "$DIR/mnt/foo"
cp --sparse=always "$DIR/disk" "$DIR/crashed"

echo "Linux $(uname -r), $FEATURE, $REMOVE. After the power cut and recovery:"
mount -o loop "$DIR/crashed" "$DIR/after" || fail "the crashed file system cannot be mounted"
ls -lA "$DIR/after"
[ -e "$DIR/after/foo" ] || fail "foo is gone, which is another fault"
[ ! -e "$DIR/after/A" ] || fail "A is still there: the removal was not recovered"
umount "$DIR/after"
checked=0
e2fsck -f -n "$DIR/crashed" >"$DIR/said" 2>&1 || checked=$?
cat "$DIR/said"
case $checked in
0) echo "KEPT: e2fsck finds nothing wrong after recovery" ;;
4) echo "BROKEN: e2fsck finds errors after recovery, the first: $(grep -m 1 -E 'Fix\? no|Unconnected' "$DIR/said")" ;;
*) fail "e2fsck exits with $checked" ;;
esac
