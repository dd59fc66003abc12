#!/bin/sh
# ext4 with fast_commit: after a power cut, a new file has the extended attributes of the deleted file whose inode it got.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted, and the attributes of the new file are listed.
#
#   REUSE=inode     the default: the new file gets the inode of the deleted one
#   REUSE=none      control: the file with the attribute is not deleted
#   FEATURE=^fast_commit    control: the same without fast commits
#
# Needs root, loop devices, attr and xfs_io. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FEATURE=${FEATURE:-fast_commit} REUSE=${REUSE:-inode}
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

for tool in mkfs.ext4 losetup mount xfs_io setfattr getfattr; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 64M "$DIR/disk"
mkfs.ext4 -q -F -b 4096 -I 256 -J size=8 -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$DIR/disk"
# commit=: no commit by the clock in between; by default there is one every 5 s.
mount -o loop,commit=3600 "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4 with $FEATURE"
: >"$DIR/mnt/foo"
setfattr -n user.secret -v "of another file" "$DIR/mnt/foo"
old=$(stat -c %i "$DIR/mnt/foo")
case $REUSE in
inode) rm "$DIR/mnt/foo" ;;
none) ;;
*) fail "REUSE=$REUSE: inode or none" ;;
esac
sync
xfs_io -f -c fsync "$DIR/mnt/bar"
new=$(stat -c %i "$DIR/mnt/bar")
[ "$REUSE" = none ] || [ "$new" = "$old" ] || fail "bar has inode $new, and foo had $old"
[ -z "$(getfattr -d "$DIR/mnt/bar" 2>/dev/null)" ] || fail "bar has attributes before the power cut"
cp --sparse=always "$DIR/disk" "$DIR/crashed"

echo "Linux $(uname -r), $FEATURE; foo was inode $old, bar is inode $new. After the power cut and recovery:"
mount -o loop "$DIR/crashed" "$DIR/after" || fail "the crashed file system cannot be mounted"
ls -liA "$DIR/after"
[ -e "$DIR/after/bar" ] || fail "bar is gone, which is another fault"
found=$(getfattr -d --absolute-names "$DIR/after/bar" | grep '^user\.' || :)
if [ -n "$found" ]; then
	echo "BROKEN: bar, which nobody gave an attribute, has $found"
else
	echo "KEPT: bar has no attributes"
fi
