#!/bin/sh
# ext4 with fast_commit: a directory is removed, another one is made, which gets its inode, and a file in that one is
# synced. After a power cut the file system cannot be mounted any more, or the file is gone.
#
# The disk is copied once fsync has returned, which is what a power cut leaves of a disk that loses nothing at all, and
# the copy is mounted.
#
#   HELD=           the directory that is removed was empty: mount(2) fails
#   HELD=x          it held a file, which is removed first: mount(2) succeeds, and the synced file is gone
#   REMOVE=no       control: the other directory is not removed, so that the new one has a new inode
#   FEATURE=^fast_commit    control: the same without fast commits
#
# Needs root and loop devices. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
HELD=${HELD-} REMOVE=${REMOVE:-yes} FEATURE=${FEATURE:-fast_commit}
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

for tool in mkfs.ext4 e2fsck losetup mount; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 64M "$DIR/disk"
mkfs.ext4 -q -F -b 4096 -J size=8 -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$DIR/disk"

# commit=: no commit by the clock in between.
mount -o loop,commit=3600 "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4 with $FEATURE"
mkdir "$DIR/mnt/d" "$DIR/mnt/d/old"
[ -z "$HELD" ] || : >"$DIR/mnt/d/old/$HELD"
sync
old=$(stat -c %i "$DIR/mnt/d/old")
[ -z "$HELD" ] || rm "$DIR/mnt/d/old/$HELD"
[ "$REMOVE" = no ] || rmdir "$DIR/mnt/d/old"
mkdir "$DIR/mnt/d/new"
new=$(stat -c %i "$DIR/mnt/d/new")
: >"$DIR/mnt/d/new/f"
sync "$DIR/mnt/d/new/f"
cp --sparse=always "$DIR/disk" "$DIR/crashed"
echo "Linux $(uname -r), $FEATURE: d/old had inode $old, d/new has inode $new; d/new/f is synced, and the power fails"
[ "$REMOVE" = no ] || [ "$old" = "$new" ] || fail "the new directory did not get the inode of the old one"

if said=$(LC_ALL=C mount -o loop "$DIR/crashed" "$DIR/after" 2>&1); then
	there=no
	[ ! -e "$DIR/after/d/new/f" ] || there=yes
	(cd "$DIR/after" && find d -printf '  after recovery: %p\n')
	umount "$DIR/after"
	[ $there = no ] || {
		echo "KEPT: d/new/f is there"
		exit 0
	}
	what="and d/new/f is gone, although its fsync had returned"
else
	what="and mount(2) fails: $(echo "$said" | head -n 1 | sed 's/.*: //')"
fi
dmesg | grep -E 'JBD2|EXT4-fs ' | tail -n 4
echo "what e2fsck -f -n says:"
e2fsck -f -n "$DIR/crashed" 2>&1 | grep -v '^$' || :
echo "BROKEN: rmdir, mkdir, fsync, a power cut, $what"
